"""What one operation of each JAX primitive costs: the tables.

Flops follow XLA's ``HloCostAnalysis`` after XLA's own expansions (``asinh`` is not one HLO
instruction, but a dozen), measured with ``compiled.cost_analysis()`` on jax 0.10.2: an elementwise
operation is one flop per element of its result, and a transcendental function is counted apart.
``tests/passes/test_cost_roofline.py`` compares the tables with XLA again.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """How XLA treats an operation when it forms kernels."""

    #: Elementwise, so cheap that XLA computes it again in each consumer.
    ELEMENTWISE = 0
    #: Elementwise, but XLA does not compute it twice (``exp``, ``tanh``, a division).
    EXPENSIVE = 1
    #: The same bytes under another shape: no work, no buffer.
    BITCAST = 2
    #: Small operands, large result, no arithmetic: computed where it is read.
    BROADCAST = 3
    #: Each element of the result is an element of an operand: slice, pad, transpose, gather.
    MOVE = 4
    #: Reads many elements for each one written. Fuses what it reads, not into what reads it.
    REDUCE = 5
    #: A kernel of its own; what it reads and writes lies in memory.
    KERNEL = 6
    #: A region: scan, while, cond.
    CONTROL = 7
    #: Takes no time and no memory: literals, tokens, barriers.
    NOTHING = 8


# Looking up a member in its class takes Python 3.11 ten times as long as a comparison.
ELEMENTWISE, EXPENSIVE, BITCAST, BROADCAST, MOVE, REDUCE, KERNEL, CONTROL, NOTHING = Kind

#: ``(flops, transcendentals)`` for each element of the result.
PER_ELEMENT: dict[str, tuple[float, float]] = {
    **dict.fromkeys(
        (
            "abs add add_any and ceil clamp clz convert_element_type eq eq_to floor ge gt imag "
            "is_finite le le_to lt lt_to max min mul mulhi ne neg not or population_count real "
            "reduce_precision round select_n shift_left shift_right_arithmetic "
            "shift_right_logical sign square sub xor complex"
        ).split(),
        (1.0, 0.0),
    ),
    "one_minus_square": (2.0, 0.0),
    # Horner's rule; eight coefficients are usual.
    "polynomial": (16.0, 0.0),
    "conj": (4.0, 0.0),
    "nextafter": (23.0, 0.0),
    "div": (1.0, 0.0),
    "rem": (1.0, 0.0),
    **dict.fromkeys(
        "atan atan2 cbrt cos erf exp expm1 log log1p log2 pow rsqrt sin sqrt tan tanh".split(),
        (0.0, 1.0),
    ),
    "exp2": (1.0, 1.0),
    "logistic": (3.0, 1.0),
    "asin": (5.0, 2.0),
    "acos": (3.0, 2.0),
    "sinh": (10.0, 3.0),
    "cosh": (3.0, 2.0),
    "asinh": (11.0, 3.0),
    "acosh": (7.0, 4.0),
    "atanh": (6.0, 2.0),
    "erfc": (60.0, 1.0),
    "erf_inv": (37.0, 2.0),
    "lgamma": (52.0, 4.0),
    "digamma": (73.0, 3.0),
    "bessel_i0e": (83.0, 1.0),
    "bessel_i1e": (83.0, 1.0),
    # Series and continued fractions: loops whose number of turns depends on the values. The
    # figures are those of about twenty turns.
    "igamma": (20 * 268.0, 6.0),
    "igammac": (20 * 268.0, 6.0),
    "igamma_grad_a": (20 * 522.0, 10.0),
    "random_gamma_grad": (20 * 522.0, 10.0),
    "random_gamma": (20 * 100.0, 20.0),
    "regularized_incomplete_beta": (20 * 258.0, 16.0),
    "polygamma": (254.0, 19.0),
    "zeta": (122.0, 11.0),
    # Counter-based random bits: twenty rounds of add, rotate, xor for two words.
    "threefry2x32": (45.0, 0.0),
    "random_bits": (45.0, 0.0),
    "random_fold_in": (45.0, 0.0),
    "random_split": (45.0, 0.0),
    "random_seed": (4.0, 0.0),
    "rng_bit_generator": (37.0, 0.0),
    "rng_uniform": (37.0, 0.0),
    "custom_lin": (0.0, 0.0),
}

#: Elementwise primitives that XLA computes again rather than store.
_CHEAP = (
    "abs add add_any and ceil clamp clz convert_element_type eq eq_to floor ge gt imag is_finite "
    "le le_to lt lt_to max min mul mulhi ne neg not or population_count real reduce_precision "
    "round select_n shift_left shift_right_arithmetic shift_right_logical sign square sub xor "
    "complex conj nextafter integer_pow cos sin one_minus_square polynomial bitcast_convert_type "
    "copy random_wrap random_unwrap"
).split()

_EXPENSIVE = (
    "div rem atan atan2 cbrt erf exp expm1 log log1p log2 pow rsqrt sqrt tan tanh exp2 "
    "logistic asin acos sinh cosh asinh acosh atanh erfc erf_inv lgamma digamma bessel_i0e "
    "bessel_i1e polygamma zeta"
).split()

_KERNEL = (
    "dot_general conv_general_dilated sort top_k approx_top_k fft cumsum cumprod cummax cummin "
    "cumlogsumexp argmax argmin reduce_window reduce_window_max reduce_window_min "
    "reduce_window_sum select_and_scatter select_and_scatter_add select_and_gather_add scatter "
    "scatter-add scatter-max scatter-min scatter-mul scatter-sub "
    "igamma igammac igamma_grad_a random_gamma random_gamma_grad regularized_incomplete_beta "
    "threefry2x32 random_bits random_fold_in random_split random_seed random_clone "
    "rng_bit_generator rng_uniform "
    "cholesky cholesky_update eig eigh hessenberg householder_product ormqr lu "
    "lu_pivots_to_permutation qr schur svd symmetric_product triangular_solve tridiagonal "
    "tridiagonal_solve "
    "all_gather all_gather_reduced all_to_all pmax pmin ppermute psum psum_invariant psend precv "
    "pgather pbroadcast pvary ragged_all_to_all reduce_scatter unreduced_psum "
    "unreduced_reduce_scatter axis_index "
    "debug_callback debug_print pure_callback io_callback python_callback ffi_call ragged_dot "
    "ragged_dot_general scaled_matmul custom_linear_solve device_put"
).split()

#: Primitive -> kind. What is missing here is unknown to the model.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(_CHEAP, Kind.ELEMENTWISE),
    **dict.fromkeys(_EXPENSIVE, Kind.EXPENSIVE),
    **dict.fromkeys(
        "reshape squeeze expand_dims stop_gradient sharding_constraint custom_lin".split(),
        Kind.BITCAST,
    ),
    **dict.fromkeys("broadcast_in_dim iota empty empty2 broadcast".split(), Kind.BROADCAST),
    **dict.fromkeys(
        (
            "slice dynamic_slice dynamic_update_slice pad concatenate transpose rev gather split "
            "stack unstack tile get swap addupdate"
        ).split(),
        Kind.MOVE,
    ),
    **dict.fromkeys(
        (
            "reduce reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor"
        ).split(),
        Kind.REDUCE,
    ),
    **dict.fromkeys(_KERNEL, Kind.KERNEL),
    **dict.fromkeys(
        (
            "scan while cond jit closed_call core_call call custom_jvp_call custom_vjp_call "
            "eval_jaxpr remat remat2 checkpoint shard_map xla_pmap custom_partitioning"
        ).split(),
        Kind.CONTROL,
    ),
    **dict.fromkeys(
        "after_all create_token optimization_barrier name dce_sink stage".split(), Kind.NOTHING
    ),
}
