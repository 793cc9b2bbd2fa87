"""Every private or semi-private JAX name that this package uses, for jax 0.10 to 0.12.

Nothing else imports ``jax._src`` or depends on what differs between versions. Each name says where
it lives and what changed. In jax 0.12 ``ClosedJaxpr`` is ``Jaxpr``: a jaxpr whose constants have
values attached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax._src import compiler as _compiler  # 0.10-0.12: get_compile_options
from jax._src import config as _config  # 0.10-0.12: trace_context
from jax._src import core as _core  # 0.10-0.12: InternalMutableArrayEffect, NamedAxisEffect
from jax._src import effects as _effects  # 0.10-0.12: JaxprInputEffect, ordered_effects
from jax._src import literals as _literals  # 0.10-0.12: TypedNdArray
from jax._src import source_info_util as _source  # 0.10-0.12; jax.extend has `summarize` only
from jax._src import stages as _stages  # 0.10-0.12: CompiledCallParams
from jax._src.array import ArrayImpl as _ArrayImpl  # 0.10-0.12
from jax._src.interpreters import mlir as _mlir  # 0.10-0.12: LoweringParameters
from jax._src.interpreters import pxla as _pxla  # 0.10-0.12: lowering, compiling, internal refs
from jax._src.lib import xla_client as _xla_client  # type: ignore[attr-defined] # 0.10-0.12: batched copies
from jax._src.random import prng as _prng  # 0.10-0.12: KeyTy, prngs
from jax._src.sharding_impls import UNSPECIFIED as _UNSPECIFIED  # type: ignore[attr-defined] # 0.10-0.12
from jax._src.state import types as _state_types  # 0.10-0.12: AbstractRef
from jax.extend.core import (
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    Var,
    new_jaxpr_eqn,
)
from jax.sharding import SingleDeviceSharding

__all__ = [
    "ARRAY_TYPE",
    "SHARDING_ATTRIBUTE",
    "ClosedJaxpr",
    "DropVar",
    "Executable",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "LoweredJaxpr",
    "Primitive",
    "Var",
    "array_literal",
    "assembler",
    "batched_copy",
    "closed_jaxpr",
    "device_arrays",
    "discharge_internal_refs",
    "effect_kind",
    "extend_call_params",
    "is_jaxpr",
    "is_ordered",
    "is_reference",
    "is_tracing",
    "jaxpr_consts",
    "jaxpr_inputs",
    "jit_disabled",
    "key_dtype",
    "key_tag",
    "lower_jaxpr",
    "number_literal",
    "open_jaxpr",
    "primitive_named",
    "read_params",
    "rebuild_eqn",
    "trace_context",
    "user_frame",
    "write_params",
]

#: A ClosedJaxpr or a Jaxpr; one class in 0.12.
AnyJaxpr: TypeAlias = Any


# Jaxprs -----------------------------------------------------------------------------------------


def is_jaxpr(value: object) -> bool:
    """Whether ``value`` is a jaxpr, open or closed."""
    return isinstance(value, ClosedJaxpr | Jaxpr)


def jaxpr_consts(jaxpr: AnyJaxpr) -> list[tuple[Var, Any]]:
    """The constants that have values attached, with their variables."""
    consts = getattr(jaxpr, "consts", ())  # an open Jaxpr of 0.10 has no `consts`
    return list(zip(jaxpr.constvars, consts)) if consts else []


def jaxpr_inputs(jaxpr: AnyJaxpr) -> list[Var]:
    """The variables that a caller gives: constants without a value first, then ``invars``."""
    if getattr(jaxpr, "consts", ()):
        return list(jaxpr.invars)
    return [*jaxpr.constvars, *jaxpr.invars]


def open_jaxpr(
    invars: Sequence[Var],
    outvars: Sequence[Any],
    eqns: Sequence[JaxprEqn],
    name: str,
    num_constvars: int = 0,
) -> Jaxpr:
    """A jaxpr without constants; its effects are those of its equations.

    The first ``num_constvars`` of ``invars`` become constvars: 0.10 keeps some open jaxprs that way
    (0.12 makes them plain leading inputs).
    """
    debug_info = DebugInfo("baechi", name, None, None)
    return Jaxpr(
        list(invars[:num_constvars]),
        list(invars[num_constvars:]),
        list(outvars),
        list(eqns),
        _visible_effects(eqns, invars),
        debug_info,
    )


def closed_jaxpr(
    invars: Sequence[Var], outvars: Sequence[Any], eqns: Sequence[JaxprEqn], name: str
) -> ClosedJaxpr:
    """A closed jaxpr without constants."""
    return ClosedJaxpr(open_jaxpr(invars, outvars, eqns, name), [])


def _visible_effects(eqns: Iterable[JaxprEqn], invars: Sequence[Var]) -> set[Any]:
    """The union of the equations' effects, without those on references made inside."""
    effects: set[Any] = set()
    given: set[Var] | None = None
    for eqn in eqns:
        for effect in eqn.effects:
            if isinstance(effect, _effects.JaxprInputEffect):
                given = set(invars) if given is None else given
                if effect.input not in given:
                    continue
            effects.add(effect)
    return effects


def rebuild_eqn(
    original: JaxprEqn | None,
    invars: Sequence[Any],
    outvars: Sequence[Var],
    primitive: Primitive,
    params: Mapping[str, Any],
) -> JaxprEqn:
    """An equation; its effects, source and context are those of ``original``, where there is one.

    An effect on an input (reading or writing a reference) names the input's variable, so it is
    renamed with it.
    """
    if original is None:
        return new_jaxpr_eqn(list(invars), list(outvars), primitive, dict(params), set())
    effects = original.effects
    if effects:
        renamed = dict(zip(map(id, original.invars), invars))
        effects = {_rename(effect, renamed) for effect in effects}
    return new_jaxpr_eqn(
        list(invars),
        list(outvars),
        primitive,
        dict(params),
        effects,
        original.source_info,
        original.ctx,
    )


def _rename(effect: Any, renamed: Mapping[int, Any]) -> Any:
    if isinstance(effect, _effects.JaxprInputEffect) and not isinstance(effect.input, int):
        new = renamed.get(id(effect.input))
        return effect if new is None else effect.replace(new)
    return effect


# Effects ----------------------------------------------------------------------------------------


def effect_kind(effect: Any) -> str | None:
    """The name of the token chain that ``effect`` belongs to; None for what needs no order.

    Reads and writes of references, and their making, share the chain ``Ref``. The others go by
    class: ``OrderedIO``, ``IO``, ``OrderedDebug``, ``Debug``. An axis name in scope is no effect.
    """
    if isinstance(effect, _core.NamedAxisEffect):
        return None
    if isinstance(effect, _effects.JaxprInputEffect | _core.InternalMutableArrayEffect):
        return "Ref"
    return type(effect).__name__.removesuffix("Effect")


def is_ordered(effect: Any) -> bool:
    """Whether JAX keeps ``effect`` in program order from one run to the next."""
    return bool(_effects.ordered_effects.contains(effect))


def is_reference(aval: Any) -> bool:
    """Whether ``aval`` is that of a mutable reference (``jax.new_ref``)."""
    return isinstance(aval, _state_types.AbstractRef)


def discharge_internal_refs(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """Turn references (``jax.new_ref``) made inside into values, as JAX does when it lowers.

    A reference cannot leave the program that it is made in, so it could not pass from one task to
    another.
    """
    if not any(isinstance(e, _core.InternalMutableArrayEffect) for e in jaxpr.effects):
        return jaxpr
    return _pxla._discharge_internal_refs(jaxpr)


# Source information -------------------------------------------------------------------------------


def user_frame(traceback: Any) -> tuple[str, int, int]:
    """``(file, line, column)`` of the innermost frame outside JAX; ``("", 0, 0)`` if unknown."""
    if traceback is None:
        return ("", 0, 0)
    codes, instructions = traceback.raw_frames()
    for code, instruction in zip(codes, instructions):
        if _source.is_user_filename(code.co_filename):
            key = (code.co_filename, code, instruction)
            frame = _FRAMES.get(key)
            if frame is None:
                found = _source.raw_frame_to_frame(code, instruction)
                frame = _FRAMES[key] = (found.file_name, found.start_line, found.start_column)
            return frame
    return ("", 0, 0)


#: Code objects compare by content, the file's name aside.
_FRAMES: dict[tuple[str, Any, int], tuple[str, int, int]] = {}


# Values -------------------------------------------------------------------------------------------


def number_literal(value: Any, aval: Any) -> Literal:
    """A Literal of type ``aval``; its value keeps dtype and weak type, whatever the x64 mode."""
    return array_literal(_literals.TypedNdArray(np.asarray(value, dtype=aval.dtype), aval), aval)


def array_literal(value: Any, aval: Any) -> Literal:
    """A Literal that holds ``value`` as it is."""
    make: Any = Literal
    literal: Literal = make(value, aval)
    return literal


def key_tag(dtype: Any) -> str | None:
    """The short name of a typed random key's implementation (``fry``); None for other dtypes."""
    return dtype._impl.tag if isinstance(dtype, _prng.KeyTy) else None


def key_dtype(tag: str) -> Any:
    """The dtype of typed random keys whose implementation is ``tag``; KeyError if none."""
    for impl in _prng.prngs.values():
        if impl.tag == tag:
            make: Any = _prng.KeyTy
            return make(impl)
    raise KeyError(tag)


# Primitives ---------------------------------------------------------------------------------------


def primitive_named(name: str) -> Primitive | None:
    """The public primitive (``jax.extend.core.primitives``) called ``name``, or None."""
    global _PRIMITIVES
    if _PRIMITIVES is None:
        from jax.extend.core import primitives

        found = (getattr(primitives, entry) for entry in dir(primitives) if entry.endswith("_p"))
        _PRIMITIVES = {entry.name: entry for entry in found if isinstance(entry, Primitive)}
    return _PRIMITIVES.get(name)


_PRIMITIVES: dict[str, Primitive] | None = None


def read_params(eqn: JaxprEqn) -> dict[str, Any]:
    """The parameters of ``eqn`` under the names that the IR uses, whatever the version.

    0.12: a scan's ``ft_in`` and ``ft_out`` (trees of its inputs and outputs) become the counts
    ``num_consts`` and ``num_carry`` of 0.10.
    """
    params: dict[str, Any] = eqn.params
    if eqn.primitive.name != "scan" or "ft_in" not in params:
        return params
    consts, carry, _ = params["ft_in"].unpack()
    renamed: dict[str, Any] = {}
    for name, value in params.items():
        if name == "ft_in":
            renamed["num_consts"] = len(consts)
            renamed["num_carry"] = len(carry)
        elif name != "ft_out":
            renamed[name] = value
    return renamed


def traced_arguments(traced: Any) -> tuple[Any, tuple[bool, ...]]:
    """The structure of ``(args, kwargs)`` of a ``jax.stages.Traced``, and which leaves are donated.

    ``traced.args_info`` says the same (0.10 to 0.12), but builds the user's classes around records
    that are no arrays, which some refuse.
    """
    tree = traced._in_tree
    return tree, tuple(bool(d) for d in traced._params["donated_invars"][: tree.num_leaves])


def write_params(eqn: JaxprEqn, params: dict[str, Any], num_operands: int) -> dict[str, Any]:
    """The reverse of ``read_params``: ``params`` as ``eqn.primitive`` takes them.

    Raises ValueError where the carry's size changed: 0.12 cannot be told its new structure.
    """
    if eqn.primitive.name != "scan" or "ft_in" not in eqn.params:
        return params
    ft_in, ft_out = eqn.params["ft_in"], eqn.params["ft_out"]
    consts, carry, xs = ft_in.unpack()
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    rest = {k: v for k, v in params.items() if k not in ("num_consts", "num_carry")}
    if num_consts != len(consts) or num_carry != len(carry) or num_operands != len(ft_in):
        if num_carry != len(carry):
            raise ValueError(f"a scan of {len(carry)} carried values cannot become {num_carry}")
        from jax._src import flattree  # type: ignore[attr-defined] # 0.12

        num_xs = num_operands - num_consts - num_carry
        xs = xs if num_xs == len(xs) else flattree.pack(_singletons(flattree, num_xs))
        ft_in = flattree.pack((flattree.pack(_singletons(flattree, num_consts)), carry, xs))
    return {**rest, "ft_in": ft_in, "ft_out": ft_out}


def _singletons(flattree: Any, count: int) -> tuple[Any, ...]:
    return tuple(flattree.FTSingleton(None) for _ in range(count))


def extend_call_params(params: dict[str, Any], extra: int) -> dict[str, Any]:
    """``params`` of a call (jit, custom derivative, remat) with ``extra`` more inputs, in front."""
    if not extra:
        return params
    front: dict[str, Callable[[Any], Any]] = {
        "in_shardings": lambda old: (_UNSPECIFIED,) * extra + old,
        "in_layouts": lambda old: (None,) * extra + old,
        "donated_invars": lambda old: (False,) * extra + old,
        "num_consts": lambda old: old + extra,
        "prevent_cse": lambda old: (False,) * extra + old if isinstance(old, tuple) else old,
    }
    return {key: front[key](old) if key in front else old for key, old in params.items()}


# Executables (runtime/) -----------------------------------------------------------------------
#
# ``jax.jit`` of a function that evaluates a jaxpr would trace it again and compile it for one
# device. The runtime has jaxprs already and compiles each for several devices, so it goes one layer
# below: lower once (``pxla.lower_sharding_computation``), compile per device
# (``pxla.UnloadedMeshExecutable.from_hlo``), call through jit's own C++ fast path
# (``create_cpp_call``). The signatures are those of jax 0.10 to 0.12.


class LoweredJaxpr:
    """A jaxpr lowered for one platform, not yet compiled for any device of it."""

    __slots__ = ("_lowering", "_out_count", "donated")

    def __init__(self, lowering: Any, donated: tuple[bool, ...], out_count: int) -> None:
        self._lowering = lowering
        self._out_count = out_count
        #: Which arguments give their buffers away.
        self.donated = donated

    def compile(
        self, device: jax.Device, compiler_options: Sequence[tuple[str, Any]] = ()
    ) -> Executable:
        """Compile for ``device``; blocks without holding the GIL, so threads run in parallel."""
        lowering = self._lowering
        # Lowered without shardings, so it would give uncommitted results; ours stay where they are.
        arguments = {**lowering.compile_args, "committed": True}
        loaded = _pxla.UnloadedMeshExecutable.from_hlo(
            lowering._name,
            lowering._hlo,
            **arguments,
            compiler_options_kvs=tuple(compiler_options),
            device_list=SingleDeviceSharding(device)._internal_device_list,
        )
        in_tree = jax.tree.structure(((0,) * len(self.donated), {}))
        out_tree = jax.tree.structure([0] * self._out_count)
        params = _stages.CompiledCallParams(
            loaded, False, in_tree, out_tree, lowering.const_args, None, None
        )
        return Executable(loaded, params, self.donated)


class Executable:
    """A jaxpr compiled for one device.

    ``call(*arrays)`` gives a list of arrays without blocking. ``has_effects``: it calls back into
    Python, or has another effect. ``donated``: which arguments give their buffers away.
    """

    __slots__ = ("__weakref__", "_loaded", "_params", "call", "donated", "has_effects")

    def __init__(self, loaded: Any, params: Any, donated: tuple[bool, ...]) -> None:
        self._loaded = loaded
        self._params = params
        self.donated = donated
        fast = loaded.create_cpp_call(params)
        self.has_effects = fast is None
        self.call: Callable[..., list[jax.Array]] = (
            fast if fast is not None else _slow_call(loaded, params.const_args)
        )

    def copy_to(self, device: jax.Device) -> Executable | None:
        """The same code loaded for ``device``, which is of the same kind: nothing is compiled.

        None where that cannot be done: with effects, whose callbacks belong to this executable,
        with constants beside the code, and on backends that do not serialise executables.
        """
        unloaded = self._loaded._unloaded_executable
        tied = unloaded.keepalive or unloaded.host_callbacks or self._params.const_args
        if self.has_effects or tied:
            return None
        client = device.client
        target = SingleDeviceSharding(device)
        devices = target._internal_device_list
        try:
            code = client.serialize_executable(unloaded.xla_executable)
            options = _compiler.get_compile_options(1, 1, np.array([[device.id]]))
            loaded = client.deserialize_executable(code, devices, options)
        except (jax.errors.JaxRuntimeError, TypeError, ValueError):
            return None
        if list(loaded.local_devices()) != [device]:
            return None
        copy = dataclasses.replace(
            unloaded,
            xla_executable=loaded,
            device_list=devices,
            input_shardings=tuple(target for _ in unloaded.input_shardings),
            output_shardings=tuple(target for _ in unloaded.output_shardings),
        ).load()
        return Executable(copy, self._params._replace(executable=copy), self.donated)

    def call_with_token(self, *arrays: jax.Array) -> tuple[list[jax.Array], Any]:
        """``call``, with a token whose ``block_until_ready`` waits for the end of this run.

        For executables without effects. Takes some microseconds more than ``call``.
        """
        unsafe_call = self._loaded.unsafe_call
        buffers: Any = list(arrays)
        if any(type(array) is not _ArrayImpl for array in arrays):
            buffers = unsafe_call.in_handler(arrays)
        results = unsafe_call.xla_executable.execute_sharded(buffers, with_tokens=True)
        outputs: list[jax.Array] = results.consume_with_handlers(unsafe_call.out_handler.handlers)
        return outputs, results.consume_token()

    def memory(self) -> tuple[int, int, int, int] | None:
        """Bytes of arguments, results, results that take an argument's buffer, temporaries.

        None where the backend does not say.
        """
        stats = self._loaded.memory_analysis()
        if stats is None:
            return None
        return (
            stats.argument_size_in_bytes,
            stats.output_size_in_bytes,
            stats.alias_size_in_bytes,
            stats.temp_size_in_bytes,
        )

    def as_text(self) -> str:
        """The optimised HLO."""
        return str(self._loaded.as_text())


def _slow_call(loaded: Any, constants: Sequence[Any]) -> Callable[..., list[jax.Array]]:
    unsafe_call = loaded.unsafe_call

    def call(*arrays: jax.Array) -> list[jax.Array]:
        return list(unsafe_call(*constants, *arrays))

    return call


def lower_jaxpr(jaxpr: Any, name: str, donated: Sequence[bool], device: jax.Device) -> LoweredJaxpr:
    """Lower a ``ClosedJaxpr`` for the platform of ``device``, argument ``i`` donated or not.

    Nothing is traced again. Unused arguments stay arguments.
    """
    ins, outs = len(jaxpr.in_avals), len(jaxpr.out_avals)
    with jax.default_device(device):
        lowering = _pxla.lower_sharding_computation(
            jaxpr,
            "jit",
            name,
            (_UNSPECIFIED,) * ins,
            (_UNSPECIFIED,) * outs,
            (None,) * ins,
            (None,) * outs,
            tuple(donated),
            keep_unused=True,
            context_mesh=jax.sharding.get_abstract_mesh(),
            compiler_options_kvs=(),
            lowering_platforms=None,
            lowering_parameters=_mlir.LoweringParameters(),
            pgle_profiler=None,
        )
    return LoweredJaxpr(lowering, tuple(donated), outs)


#: The class of ordinary arrays (random keys are ``jax.Array`` of another class).
ARRAY_TYPE: type[jax.Array] = _ArrayImpl

#: Where such an array keeps its sharding; the public property goes through Python. 0.10-0.12.
SHARDING_ATTRIBUTE = "_sharding"


def assembler(aval: Any, sharding: Any) -> Callable[[Sequence[Any]], Any]:
    """A function of one array per device of ``sharding``, in its order, that makes one array.

    ``jax.make_array_from_single_device_arrays`` without its checks, a fifth of its time; nothing is
    copied. ``_skip_checks``: 0.10-0.12.
    """
    if key_tag(aval.dtype) is not None:
        return lambda arrays: jax.make_array_from_single_device_arrays(
            aval.shape, sharding, list(arrays)
        )
    make: Any = _ArrayImpl

    def assemble(arrays: Sequence[Any]) -> Any:
        array = make(aval, sharding, list(arrays), committed=True, _skip_checks=True)
        setattr(array, _PARTS, arrays)
        return array

    return assemble


#: Where an assembled array keeps what it was made of: taking it apart anew costs ten times as much.
_PARTS = "_baechi_parts"


def device_arrays(array: Any) -> Sequence[Any]:
    """The array of each device of an array over several, in the order of its sharding.

    ``addressable_shards[i].data`` in a third of the time. They share the array's buffers: what
    deletes one of them, or donates it, deletes the array. ``_arrays``: 0.10-0.12.
    """
    if type(array) is _ArrayImpl:
        parts: Sequence[Any] | None = getattr(array, _PARTS, None)
        return array._arrays if parts is None else parts
    return [shard.data for shard in array.addressable_shards]


def batched_copy(shardings: Sequence[SingleDeviceSharding]) -> Callable[..., Sequence[jax.Array]]:
    """A function that starts copying its ``i``-th array to ``shardings[i]``, all of one client.

    What ``jax.device_put`` ends in; the copies never share a buffer with their sources.
    """
    lists = [sharding._internal_device_list.addressable_device_list for sharding in shardings]
    semantics = [_xla_client.ArrayCopySemantics.ALWAYS_COPY] * len(lists)
    targets = list(shardings)
    copy = _xla_client.batched_copy_array_to_devices_with_sharding

    def put(*arrays: jax.Array) -> Sequence[jax.Array]:
        copies: Sequence[jax.Array] = copy(list(arrays), lists, targets, semantics)
        return copies

    return put


def trace_context() -> Any:
    """The part of JAX's configuration that tracing depends on (x64, matmul precision, ...)."""
    return _config.trace_context()


def jit_disabled() -> bool:
    """Whether ``jax.disable_jit`` holds."""
    return bool(_config.disable_jit.value)


def jit_options(fn: Any) -> dict[str, Any]:
    """What ``jax.jit`` was told of ``fn``: static and donated arguments, XLA's options.

    Empty for a function that is not jitted. ``_jit_info`` is there in 0.10 to 0.12.
    """
    info = getattr(fn, "_jit_info", None)
    if info is None:
        return {}
    names = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    options = {name: getattr(info, name) for name in names}
    return {**options, "compiler_options": dict(info.compiler_options_kvs)}


def unjitted(fn: Any) -> Callable[..., Any]:
    """The function that ``jax.jit`` made ``fn`` of."""
    wrapped: Callable[..., Any] = fn.__wrapped__
    return wrapped


def jit_places(fn: Any) -> list[str]:
    """Names of the options of ``jax.jit`` that ``fn`` was given and that say where things lie."""
    info = getattr(fn, "_jit_info", None)
    if info is None:
        return []
    given = {
        "in_shardings": (*info.in_shardings_leaves, *info.in_layouts_leaves),
        "out_shardings": (*info.out_shardings_leaves, *info.out_layouts_leaves),
        "device": (getattr(info, "device", None),),
        "backend": (getattr(info, "backend", None),),
    }
    unset = (None, _UNSPECIFIED)
    return [name for name, entries in given.items() if any(e not in unset for e in entries)]


def is_tracing() -> bool:
    """Whether some transformation is tracing in this thread."""
    return not _core.trace_state_clean()
