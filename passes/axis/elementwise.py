"""Rules of operations that work element by element.

Split operands stay split; a full operand of the same shape is read in parts. JAX lets a scalar, or
a dimension of size one, meet a larger one: of those every piece reads all.

Partial values go through what commutes with combining them. Sums: linear operations. Products:
products. Maxima and minima: what keeps the order of numbers (what reverses it turns one into the
other) and is defined for all of them. Conjunctions and disjunctions: the lattice operations, and
negation by De Morgan. Rounding is not counted as a reason against it, nor is integer overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

from baechi_jax.passes.axis.rule import At, Mixed, element_of, is_float, is_inexact, rule
from baechi_jax.passes.axis.states import Full, Partial, Split, State

_FLIPPED = {"max": "min", "min": "max"}

#: The element type of keys whose draws do not depend on how many are drawn at once.
_THREEFRY = '!baechi.key<"fry">'

#: Give their operand, or a rounding of it.
_IDENTITIES = (
    "copy layout_constraint name pvary random_clone reduce_precision reshard sharding_constraint "
    "stop_gradient with_memory_space_constraint"
).split()

#: Keep the order of real floats, and are defined for all of them.
MONOTONE = (
    "asinh atan cbrt ceil erf exp exp2 expm1 floor logistic round sign sinh tanh"
).split()  # fmt: skip

#: Keep no partial value.
_OTHERS = (
    "abs acos acosh asin atan2 atanh bessel_i0e bessel_i1e clz cos cosh digamma eq eq_to erf_inv "
    "erfc ge gt igamma igamma_grad_a igammac integer_pow is_finite le le_to lgamma log log1p log2 "
    "lt lt_to mulhi ne nextafter one_minus_square polygamma polynomial population_count pow "
    "regularized_incomplete_beta rem rsqrt shift_left shift_right_arithmetic "
    "shift_right_logical sin sqrt square tan threefry2x32 xor zeta"
).split()


def elementwise(at: At) -> list[State] | None:
    """The states where operands are split; None where none is."""
    split = at.split()
    if not split:
        return None
    dimensions = set(split.values())
    if len(dimensions) > 1:
        found = " and ".join(str(dimension) for dimension in sorted(dimensions))
        raise Mixed(f"meets operands that are split along dimensions {found}")
    (dimension,) = dimensions
    shape = at.result_shape()
    for operand, state in enumerate(at.states):
        if isinstance(state, Split):
            continue
        if not isinstance(state, Full):
            raise Mixed(f"meets operands that are split {dimension} and {state}")
        own = at.shape(operand)
        if len(own) == len(shape) and own[dimension] == shape[dimension] != 1:
            at.need_split(operand, dimension, "an operand")
    return [Split(dimension)] * len(at.op.results)


def _partial(at: At, kind: str) -> list[State]:
    return [Partial(kind)] * len(at.op.results)


@rule(*_OTHERS)
def _other(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is None:
        raise at.not_linear(at.kind())
    return states


@rule(*_IDENTITIES)
def _identity(at: At) -> Sequence[State]:
    return elementwise(at) or _partial(at, at.kind())


@rule(*MONOTONE)
def _monotone(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind not in _FLIPPED or not is_float(element_of(at.op.operands[0])):
        raise at.not_linear(kind)
    return _partial(at, kind)


@rule("neg")
def _neg(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind == "sum":
        return _partial(at, kind)
    if kind in _FLIPPED and not _wraps(at):
        return _partial(at, _FLIPPED[kind])
    raise at.not_linear(kind)


@rule("not")
def _not(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    flipped = {"and": "or", "or": "and"}.get(kind)
    if flipped is None:
        raise at.not_linear(kind)
    return _partial(at, flipped)


@rule("real", "imag", "conj", "complex")
def _complex(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind != "sum":
        raise at.not_linear(kind)
    return _all_partial(at, kind)


@rule("add", "add_any", "sub")
def _add(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind == "sum":
        return _all_partial(at, kind)
    if kind not in _FLIPPED or _wraps(at):
        raise at.not_linear(kind)
    operand = _only_partial(at, kind)
    subtracted = at.op.name == "jax.sub" and operand == 1
    return _partial(at, _FLIPPED[kind] if subtracted else kind)


@rule("mul")
def _mul(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind == "prod":
        return _all_partial(at, kind)
    if kind != "sum":
        raise at.not_linear(kind)
    _only_partial(at, kind)
    return _partial(at, kind)


@rule("div")
def _div(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind != "sum" or not is_inexact(element_of(at.op.operands[0])):
        raise at.not_linear(kind)
    at.need_full([1], "a divisor")
    return _partial(at, kind)


@rule("max", "min")
def _max(at: At) -> Sequence[State]:
    return _lattice(at, at.op.name.removeprefix("jax."), _FLIPPED)


@rule("and", "or")
def _and(at: At) -> Sequence[State]:
    return _lattice(at, at.op.name.removeprefix("jax."), {"and": "or", "or": "and"})


def _lattice(at: At, own: str, flipped: dict[str, str]) -> Sequence[State]:
    """Meets and joins: each distributes over the other."""
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind == own:
        return _all_partial(at, kind)
    if kind != flipped[own]:
        raise at.not_linear(kind)
    _only_partial(at, kind)
    return _partial(at, kind)


@rule("clamp")
def _clamp(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    if kind not in _FLIPPED:
        raise at.not_linear(kind)
    at.need_full([0, 2], "a bound")
    return _partial(at, kind)


@rule("select_n")
def _select(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    at.need_full([0], "a predicate")
    for operand in range(1, len(at.states)):
        at.need_partial(operand, kind, "a case")
    return _partial(at, kind)


@rule("convert_element_type")
def _convert(at: At) -> Sequence[State]:
    states = elementwise(at)
    if states is not None:
        return states
    kind = at.kind()
    source, target = element_of(at.op.operands[0]), element_of(at.op.results[0])
    if kind in ("and", "or"):
        if source == target:
            return _partial(at, kind)
        if source == "i1":  # as numbers: any is the maximum, all the minimum
            return _partial(at, "max" if kind == "or" else "min")
    elif source == target or _converts(kind, source, target):
        return _partial(at, kind)
    raise Mixed(f"from {source} to {target} does not keep a partial {kind}")


def _converts(kind: str, source: str, target: str) -> bool:
    """Whether the conversion is linear (order-preserving) up to rounding."""
    if source == "i1":
        return kind in _FLIPPED
    if is_inexact(source):
        if kind in _FLIPPED:
            return is_float(source) and is_float(target)
        return is_inexact(target) and (is_float(source) or not is_float(target))
    if source.startswith("ui"):
        # A partial sum may have wrapped around; a maximum has not.
        return kind in _FLIPPED and is_float(target)
    return source.startswith("i") and is_inexact(target) and (kind == "sum" or is_float(target))


@rule("bitcast_convert_type", "random_wrap", "random_unwrap")
def _bitcast(at: At) -> Sequence[State]:
    # Between widths (keys and their words) a last dimension comes or goes; those before it stay.
    split = at.split()
    if not split:
        raise at.not_linear(at.kind())
    (dimension,) = split.values()
    if dimension >= min(len(at.shape(0)), len(at.result_shape())):
        raise Mixed("takes the elements of the axis apart")
    return [Split(dimension)]


@rule("random_bits", "random_fold_in", "random_gamma", "random_split")
def _random(at: At) -> Sequence[State]:
    # One draw for each key; the dimensions of what is drawn come behind those of the keys.
    states = elementwise(at)
    if states is None:
        raise at.not_linear(at.kind())
    if element_of(at.op.operands[0]) != _THREEFRY:
        raise Mixed("draws by a generator that may draw differently for a batch of keys")
    return states


@rule("rng_bit_generator")
def _bit_generator(at: At) -> Sequence[State]:
    raise Mixed("draws all bits from one key")


def _all_partial(at: At, kind: str) -> list[State]:
    for operand in range(len(at.states)):
        at.need_partial(operand, kind, "an operand")
    return _partial(at, kind)


def _only_partial(at: At, kind: str) -> int:
    """The one operand that is partial; raises Mixed where there are more."""
    operands = [i for i, state in enumerate(at.states) if isinstance(state, Partial)]
    if len(operands) > 1:
        raise Mixed(f"meets operands that are both a partial {kind}")
    return operands[0]


def _wraps(at: At) -> bool:
    """Whether numbers below zero come out as large ones."""
    return element_of(at.op.results[0]).startswith("ui")
