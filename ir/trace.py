"""Tracing a function: from Python to the form *Traced* of ``docs/ir.md``.

Uses ``jax.jit(fn, ...).trace`` alone, so whatever jit takes is taken here in the same way:
pytrees, static and keyword arguments, donation, weak types, random keys. Arguments may be arrays or
``jax.ShapeDtypeStruct``; nothing is computed or allocated.

References (``jax.new_ref``) that live inside the function become values, as when JAX lowers. A
reference that comes from outside is refused: its contents would have to be in two places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.core import Module
from baechi_jax.ir.errors import IRError
from baechi_jax.ir.from_jaxpr import EquationRecord, convert
from baechi_jax.ir.jax_types import element_of
from baechi_jax.ir.match_state import Leaf, match_state


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """A traced function.

    ``in_avals``, ``donated`` and ``argument_names`` have one entry for each leaf of ``(args,
    kwargs)`` (static arguments left out), ``out_avals`` and ``result_names`` one for each leaf of
    the result. ``@main`` of ``module`` takes ``constants`` first, then those leaves.
    """

    module: Module
    #: What ``baechi.eqn`` attributes point to.
    equations: Sequence[EquationRecord]
    #: Arrays that the function closes over.
    constants: tuple[Any, ...]
    #: Structure of ``(args, kwargs)``, and of the result.
    in_tree: Any
    out_tree: Any
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    donated: tuple[bool, ...]
    #: ``state.params['w']``, ``result[0].params['w']``.
    argument_names: tuple[str, ...]
    result_names: tuple[str, ...]
    #: Kinds of effect (``OrderedIO``, ``Debug``, ...), sorted.
    effects: tuple[str, ...]
    #: The traced program itself.
    jaxpr: Any


def trace(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Iterable[str] = (),
) -> Trace:
    """Trace ``fn(*args, **kwargs)``; the options mean what they mean to ``jax.jit``.

    Raises what tracing raises (an error in ``fn``, an argument that is no array), and IRError for
    references from outside.
    """
    # To jit an empty sequence is not "none given": numbers would not be inferred from names.
    jitted = jax.jit(
        fn,
        static_argnums=_given(static_argnums),
        static_argnames=_given(static_argnames),
        donate_argnums=_given(donate_argnums),
        donate_argnames=_given(donate_argnames),
    )
    traced = jitted.trace(*args, **(kwargs or {}))
    jaxpr = compat.discharge_internal_refs(traced.jaxpr)
    in_tree, donated = compat.traced_arguments(traced)
    out_tree = traced.out_tree
    inputs = compat.jaxpr_inputs(jaxpr)
    paths = leaf_paths(in_tree, [var.aval for var in inputs])
    out_paths = leaf_paths(out_tree, [var.aval for var in jaxpr.outvars])
    if len(inputs) != len(paths):
        raise IRError(
            f"'{_name(fn)}' traced to {len(inputs)} inputs for {len(paths)} arguments: it "
            "closes over values that are being traced; pass them as arguments"
        )
    argument_names = _argument_names(jaxpr.debug_info.arg_names, paths)
    _refuse_references(jaxpr, argument_names, _name(fn))
    result_names = tuple("result" + jax.tree_util.keystr(path) for path in out_paths)
    state = match_state(
        [_leaf(_argument_path(path), var) for path, var in zip(paths, inputs)],
        [_leaf(_result_path(path, out_tree), v) for path, v in zip(out_paths, jaxpr.outvars)],
        donated,
        _returned(inputs, jaxpr.outvars),
    )
    converted = convert(
        jaxpr,
        argument_names=argument_names,
        result_names=result_names,
        donated=donated,
        state=state,
    )
    kinds = {kind for effect in jaxpr.effects if (kind := compat.effect_kind(effect))}
    return Trace(
        module=converted.module,
        equations=converted.equations,
        constants=converted.constants,
        in_tree=in_tree,
        out_tree=out_tree,
        in_avals=tuple(var.aval for var in inputs),
        out_avals=tuple(var.aval for var in jaxpr.outvars),
        donated=donated,
        argument_names=argument_names,
        result_names=result_names,
        effects=tuple(sorted(kinds)),
        jaxpr=jaxpr,
    )


def _given(option: Any) -> Any:
    return None if option is None or (not isinstance(option, int) and not option) else option


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


# Names --------------------------------------------------------------------------------------------


def leaf_paths(tree: Any, avals: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The path of each leaf of ``tree``, a structure of ``(args, kwargs)`` or of a result.

    JAX tells paths of a tree of values alone, so the user's classes are built around values that
    stand for arrays. Some check what they are given: first they get abstract values, which have a
    shape and a dtype, then bare objects, which JAX asks classes to bear. Leaves of a tree that
    refuses both are told apart by their numbers.
    """
    key = jax.tree_util
    for stand_ins in (avals, [object()] * tree.num_leaves):
        if len(stand_ins) != tree.num_leaves:
            continue
        try:
            built = key.tree_unflatten(tree, stand_ins)
            found = [path for path, _ in key.tree_flatten_with_path(built)[0]]
        except Exception:  # whatever a user's class raises
            continue
        if len(found) == tree.num_leaves:
            return found
    return [(key.SequenceKey(0), key.FlattenedIndexKey(index)) for index in range(tree.num_leaves)]


def _argument_names(traced: Sequence[str] | None, paths: Sequence[Any]) -> tuple[str, ...]:
    """JAX's own names where it has them all; ``args[0]['w']`` otherwise."""
    if traced is not None and len(traced) == len(paths) and all(traced):
        return tuple(traced)
    return tuple(_path_name(path) for path in paths)


def _path_name(path: Sequence[Any]) -> str:
    """The name of a leaf of ``(args, kwargs)``."""
    top, first, *rest = path
    keystr = jax.tree_util.keystr
    if top.idx == 0:
        return f"args{keystr((first, *rest))}"
    return f"{first.key}{keystr(tuple(rest))}"


# State --------------------------------------------------------------------------------------------


def _leaf(path: tuple[Any, ...], var: Any) -> Leaf:
    aval = var.aval
    if hasattr(aval, "shape") and hasattr(aval, "dtype"):
        return Leaf(path, (aval.shape, element_of(aval.dtype)), aval.shape == ())
    return Leaf(path, str(aval))


def _argument_path(path: Sequence[Any]) -> tuple[Any, ...]:
    """Steps below ``(args, kwargs)``: a position or a keyword first."""
    return tuple(_step(key) for key in path[1:])


def _result_path(path: Sequence[Any], out_tree: Any) -> tuple[Any, ...]:
    steps = tuple(_step(key) for key in path)
    data = out_tree.node_data()
    if data is None or data[0] in (tuple, list):
        return steps
    return (0, *steps)


def _step(key: Any) -> Any:
    for attribute in ("idx", "key", "name"):
        value = getattr(key, attribute, None)
        if value is not None:
            return value if isinstance(value, int | str) else str(value)
    return str(key)


def _returned(inputs: Sequence[Any], outputs: Sequence[Any]) -> dict[int, int]:
    position = {var: index for index, var in enumerate(inputs)}
    return {
        index: position[var]
        for index, var in enumerate(outputs)
        if isinstance(var, compat.Var) and var in position
    }


# References ---------------------------------------------------------------------------------------


def _refuse_references(jaxpr: Any, names: Sequence[str], function: str) -> None:
    advice = "which cannot be placed: pass its value (ref[...]) and return the new one"
    for var, name in zip(compat.jaxpr_inputs(jaxpr), names):
        if compat.is_reference(var.aval):
            raise IRError(
                f"argument '{name}' of '{function}' is a reference ({var.aval}), {advice}"
            )
    for var, _ in compat.jaxpr_consts(jaxpr):
        if compat.is_reference(var.aval):
            raise IRError(f"'{function}' closes over a reference ({var.aval}), {advice}")
