"""Equations for operations without a traced one: those that passes make, or that stand in text.

The public function of ``jax.lax`` is traced on the operands' types, so the equation is what the
installed JAX makes of it, whatever parameters its version has. Other primitives are bound with
parameters decoded from the attributes alone, where every one can be. Results are cached: a pass
that makes the same operation a thousand times costs one trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import lax

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.attributes import Attribute
from baechi_jax.ir.core import Operation
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.jax_params import NONE
from baechi_jax.ir.jax_types import aval_of, type_of
from baechi_jax.ir.types import TensorType, TokenType, Type, unplaced
from baechi_jax.runtime.decode_params import decode_alone

#: Primitive -> function of ``jax.lax``, where the name is another. All are elementwise.
_ELEMENTWISE_NAMES = {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "not": "bitwise_not",
}

_ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES) | {
    *("abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil"),
    *("clamp", "clz", "complex", "conj", "cos", "cosh", "digamma", "div", "eq", "erf", "erf_inv"),
    *("erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "imag", "is_finite", "le", "lgamma"),
    *("log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter"),
    *("population_count", "pow", "real", "rem", "rsqrt", "select_n", "shift_left"),
    *("shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square"),
    *("sub", "tan", "tanh"),
}


def equations_of(op: Operation, invars: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The equations of ``op`` on ``invars``, and the atoms of its results.

    Raises IRError, with the op and its source line, where it cannot be made, or where its result
    types are not those that JAX gives.
    """
    types = tuple(type_of(atom.aval) for atom in invars)
    wanted = tuple(
        unplaced(result.type) for result in op.results if not isinstance(result.type, TokenType)
    )
    own = tuple(
        (name, attribute)
        for name, attribute in op.attributes.items()
        if not name.startswith("baechi.")
    )
    try:
        if op.regions:
            raise IRError("an operation with regions needs its traced equation")
        traced = _traced(op.name, own, types, wanted)
    except (IRError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise IRError(
            f"{op.location}: cannot rebuild '{op.name}', which has no traced equation "
            f"('baechi.eqn'): {error}"
        ) from error
    found = tuple(type_of(atom.aval) for atom in traced.outvars)
    if found != wanted:
        raise IRError(
            f"{op.location}: '{op.name}' says it gives ({_list(wanted)}), but JAX gives "
            f"({_list(found)})"
        )
    return _instantiate(traced, invars)


def _list(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def _instantiate(traced: Any, invars: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    env = dict(zip(traced.invars, invars))

    def read(atom: Any) -> Any:
        return atom if isinstance(atom, compat.Literal) else env[atom]

    eqns: list[Any] = []
    for eqn in traced.eqns:
        outvars = [compat.Var(var.aval) for var in eqn.outvars]
        inputs = [read(atom) for atom in eqn.invars]
        eqns.append(compat.rebuild_eqn(eqn, inputs, outvars, eqn.primitive, eqn.params))
        env.update(zip(eqn.outvars, outvars))
    return eqns, [read(atom) for atom in traced.outvars]


@functools.lru_cache(maxsize=4096)
def _traced(
    name: str,
    attributes: tuple[tuple[str, Attribute], ...],
    types: tuple[Type, ...],
    wanted: tuple[Type, ...],
) -> Any:
    dialect, _, primitive = name.partition(".")
    if dialect != "jax":
        raise IRError(f"the dialect '{dialect}' has no equations")
    given = dict(attributes)
    function = _function(primitive, given, wanted)
    arguments = [aval_of(type_) for type_ in types]
    return jax.make_jaxpr(function)(*arguments).jaxpr


def _function(
    primitive: str, attributes: Mapping[str, Attribute], wanted: Sequence[Type]
) -> Callable[..., Any]:
    """What to trace for ``primitive``."""
    make = _MAKERS.get(primitive)
    params = {
        name: decode_alone(attribute) for name, attribute in attributes.items() if attribute != NONE
    }
    if make is not None:
        return make(params, wanted)
    if primitive in _ELEMENTWISE:
        _expect(params, ())
        return getattr(lax, _ELEMENTWISE_NAMES.get(primitive, primitive))  # type: ignore[no-any-return]
    known = compat.primitive_named(primitive)
    if known is None:
        raise IRError("no such primitive in jax.extend.core.primitives")
    full = {name: decode_alone(attribute) for name, attribute in attributes.items()}
    return functools.partial(known.bind, **full)


def _expect(params: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises IRError for parameters that a maker would leave out of account."""
    unknown = [name for name in params if name not in names]
    if unknown:
        raise IRError(f"unexpected attributes {unknown}")


def _tensor(wanted: Sequence[Type]) -> TensorType:
    if len(wanted) != 1 or not isinstance(wanted[0], TensorType):
        raise IRError(f"expected one tensor as result, found ({_list(wanted)})")
    return wanted[0]


# Makers: (parameters, result types) -> function ------------------------------------------------


def _optimization_barrier(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ())
    barrier: Callable[..., Any] = lax.optimization_barrier
    return lambda *operands: barrier(operands)


def _convert(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("new_dtype", "weak_type"))
    aval = aval_of(_tensor(wanted))
    known = compat.primitive_named("convert_element_type")
    assert known is not None
    # lax.convert_element_type drops what changes nothing, and cannot make a weak type.
    return functools.partial(
        known.bind, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=None
    )


def _broadcast(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("shape", "broadcast_dimensions"))
    shape = params.get("shape", _tensor(wanted).shape)
    dimensions = params["broadcast_dimensions"]
    return lambda x: lax.broadcast_in_dim(x, shape, dimensions)


def _reshape(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("new_sizes", "dimensions"))
    return lambda x: lax.reshape(x, _tensor(wanted).shape, params.get("dimensions"))


def _transpose(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("permutation",))
    return lambda x: lax.transpose(x, params["permutation"])


def _squeeze(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("dimensions",))
    return lambda x: lax.squeeze(x, params["dimensions"])


def _dot_general(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("dimension_numbers", "precision", "preferred_element_type"))
    dtype = aval_of(_tensor(wanted)).dtype
    return lambda a, b: lax.dot_general(
        a,
        b,
        params["dimension_numbers"],
        precision=_precision(params.get("precision")),
        preferred_element_type=params.get("preferred_element_type", dtype),
    )


def _precision(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_precision(entry) for entry in value)
    return lax.Precision[value] if isinstance(value, str) else value


def _reduction(name: str) -> Callable[[Mapping[str, Any], Sequence[Type]], Callable[..., Any]]:
    def make(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
        _expect(params, ("axes",))
        return lambda x: getattr(lax, name)(x, params["axes"])

    return make


def _concatenate(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("dimension",))
    return lambda *operands: lax.concatenate(operands, params["dimension"])


def _slice(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("start_indices", "limit_indices", "strides"))
    return lambda x: lax.slice(
        x, params["start_indices"], params["limit_indices"], params.get("strides")
    )


def _iota(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("dtype", "shape", "dimension"))
    aval = aval_of(_tensor(wanted))
    return lambda: lax.broadcasted_iota(aval.dtype, aval.shape, params["dimension"])


def _integer_pow(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ("y",))
    return lambda x: lax.integer_pow(x, params["y"])


def _random_unwrap(params: Mapping[str, Any], wanted: Sequence[Type]) -> Callable[..., Any]:
    _expect(params, ())
    return jax.random.key_data


_MAKERS: dict[str, Callable[[Mapping[str, Any], Sequence[Type]], Callable[..., Any]]] = {
    "optimization_barrier": _optimization_barrier,
    "convert_element_type": _convert,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "squeeze": _squeeze,
    "dot_general": _dot_general,
    "concatenate": _concatenate,
    "slice": _slice,
    "iota": _iota,
    "integer_pow": _integer_pow,
    "random_unwrap": _random_unwrap,
    **{
        name: _reduction(name)
        for name in (
            "reduce_sum",
            "reduce_max",
            "reduce_min",
            "reduce_prod",
            "reduce_and",
            "reduce_or",
        )
    },
}
