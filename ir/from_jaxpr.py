"""A ClosedJaxpr as a module: the form *Traced* of ``docs/ir.md``.

Every equation becomes one operation, ``jax.<primitive>``; calls have one name each whatever JAX
calls them (``_RENAMED``). A jaxpr in a parameter becomes a region, named in ``baechi.regions`` by
the parameter it comes from (``cond_jaxpr``, ``branches[1]``). A region is closed: its block's
arguments are the jaxpr's inputs, then one token for each kind of effect of the op; its
``baechi.yield`` gives the jaxpr's outputs, then the tokens. So calls inline by substitution.

Constants. Those of the jaxpr itself are the first arguments of ``@main``. A jaxpr inside may have
constants too (a jitted helper that closes over an array). They are hoisted: the array becomes an
argument of ``@main``, and every op on the way down takes it as a leading operand (after the
predicate of a ``cond``; with ``num_consts``, ``cond_nconsts`` and ``body_nconsts`` counting them).
``baechi.hoisted`` on an op is the number of operands it gained. Scalars become literals instead,
and what lies inside an op that we cannot extend (``reduce``, ``custom_linear_solve``) becomes
``baechi.constant``, whose value is in the side table.

Effects. A chain of tokens for each kind, in program order, starting at ``baechi.token``, which has
the unit attribute ``ordered`` where JAX keeps the order between runs too. An effect inside an op
that JAX does not count as the op's own (a kernel writing its references) has a chain in its region
alone.

Assumes that shapes are known. An unknown primitive is an ordinary op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from baechi_jax.ir import _jax_compat as compat
from baechi_jax.ir.attributes import Attribute, Unit
from baechi_jax.ir.core import Block, Module, Operation, Region, Value
from baechi_jax.ir.function import (
    function,
    refresh_function_type,
    set_argument_attributes,
    set_result_attributes,
)
from baechi_jax.ir.hoisting import (
    EXTENSIBLE,
    Constant,
    counts,
    insertion_points,
    is_scalar,
    merge,
)
from baechi_jax.ir.jax_params import numpy_scalar, split_params
from baechi_jax.ir.jax_types import type_of
from baechi_jax.ir.location import UNKNOWN, Location
from baechi_jax.ir.pause_collection import paused_collection
from baechi_jax.ir.types import TokenType, Type

_RENAMED = {
    "pjit": "jit",
    "custom_jvp_call_jaxpr": "custom_jvp_call",
    "custom_vjp_call_jaxpr": "custom_vjp_call",
    "core_closed_call": "closed_call",
    "core_call": "closed_call",
    "call": "closed_call",
    # 0.12.
    "eval_jaxpr": "closed_call",
    "checkpoint": "remat",
    "remat2": "remat",
}

_TOKEN = TokenType()


@dataclass(eq=False, slots=True)
class EquationRecord:
    """What ``baechi.eqn`` points to: a traced equation and what its parameters encode to.

    ``jaxprs`` holds ``(path, jaxpr)`` of those that became the op's regions. For the record of a
    ``baechi.constant``, ``equation`` is None and ``constant`` its value.
    """

    equation: Any
    attributes: dict[str, Attribute] = field(default_factory=dict)
    jaxprs: list[tuple[str, Any]] = field(default_factory=list)
    constant: Any = None
    #: The op's name.
    name: str = "baechi.constant"


@dataclass(frozen=True, slots=True)
class Converted:
    """A module, its side table, and the constants that are the first arguments of ``@main``."""

    module: Module
    equations: Sequence[EquationRecord]
    constants: tuple[Any, ...]


def from_jaxpr(
    closed_jaxpr: Any,
    *,
    argument_names: Sequence[str] | None = None,
    result_names: Sequence[str] | None = None,
    donated: Sequence[bool] | None = None,
    state: Mapping[int, int] | None = None,
) -> tuple[Module, Sequence[EquationRecord]]:
    """The module of ``closed_jaxpr`` and its side table; see ``convert``."""
    converted = convert(
        closed_jaxpr,
        argument_names=argument_names,
        result_names=result_names,
        donated=donated,
        state=state,
    )
    return converted.module, converted.equations


def convert(
    closed_jaxpr: Any,
    *,
    argument_names: Sequence[str] | None = None,
    result_names: Sequence[str] | None = None,
    donated: Sequence[bool] | None = None,
    state: Mapping[int, int] | None = None,
) -> Converted:
    """The module of ``closed_jaxpr``, with the constants of its first arguments.

    ``argument_names``, ``donated`` and ``state`` (argument -> result that is its next value) count
    the jaxpr's inputs, constants aside.
    """
    with paused_collection():
        return _Converter().convert(closed_jaxpr, argument_names, result_names, donated, state)


class _Converter:
    def __init__(self) -> None:
        self.equations: list[EquationRecord] = []
        self._records: dict[int, int] = {}  # id of an equation -> index
        self._constant_records: dict[int, int] = {}  # id of a constant's value -> index
        # JAX shares abstract values and source information between equations, and both outlive
        # this object; by identity the lookups cost next to nothing.
        self._types: dict[int, Type] = {}
        self._locations: dict[tuple[int, int], Location] = {}
        self._stacks: dict[int, str] = {}
        self._hoistable: dict[int, list[Constant]] = {}

    def convert(
        self,
        closed_jaxpr: Any,
        argument_names: Sequence[str] | None,
        result_names: Sequence[str] | None,
        donated: Sequence[bool] | None,
        state: Mapping[int, int] | None,
    ) -> Converted:
        inputs = compat.jaxpr_inputs(closed_jaxpr)
        own = [Constant(value, var.aval) for var, value in compat.jaxpr_consts(closed_jaxpr)]
        constants = merge([own, self._nested_constants(closed_jaxpr)])
        types = [self._type(constant.aval) for constant in constants]
        func = function("main", types + [self._type(var.aval) for var in inputs])
        arguments = func.body.arguments
        offset = len(constants)
        given = dict(zip((c.key for c in constants), arguments))
        outputs = self._fill(func.body, closed_jaxpr, arguments[offset:], given, {})
        func.body.append(Operation("func.return", outputs))
        refresh_function_type(func)
        attributes: list[dict[str, Attribute]] = [
            {"baechi.name": f"constants[{index}]", "baechi.constant": Unit()}
            for index in range(offset)
        ]
        for index in range(len(inputs)):
            entry: dict[str, Attribute] = {}
            if argument_names is not None:
                entry["baechi.name"] = argument_names[index]
            if donated is not None and donated[index]:
                entry["baechi.donated"] = Unit()
            if state is not None and index in state:
                entry["baechi.state"] = state[index]
            attributes.append(entry)
        set_argument_attributes(func, attributes)
        names = result_names if result_names is not None else [""] * len(outputs)
        set_result_attributes(func, [{"baechi.name": name} if name else {} for name in names])
        module = Module()
        module.body.append(func)
        return Converted(module, self.equations, tuple(c.value for c in constants))

    # Blocks ---------------------------------------------------------------------------------

    def _fill(
        self,
        block: Block,
        jaxpr: Any,
        inputs: Sequence[Value],
        given: Mapping[int, Value],
        tokens: dict[str, Value],
    ) -> list[Value]:
        """Append the equations of ``jaxpr`` to ``block``; the values of its outputs.

        ``given`` maps constants (``Constant.key``) to the values that hold them. ``tokens`` maps
        each kind of effect to the last token of its chain, and is brought up to date.
        """
        env: dict[Any, Value] = dict(zip(compat.jaxpr_inputs(jaxpr), inputs))
        ops = block.ops
        literals: dict[tuple[Type, str], Value] = {}
        # The same few come again and again.
        known: dict[tuple[int, bytes], Value] = {}

        def literal(aval: Any, value: Any) -> Value:
            array = np.asarray(value, dtype=aval.dtype)
            content = (id(aval), array.tobytes())
            found = known.get(content)
            if found is None:
                found = known[content] = new_literal(aval, array)
            return found

        def new_literal(aval: Any, array: Any) -> Value:
            type_ = self._type(aval)
            attribute = numpy_scalar(array[()])
            key = (type_, repr(attribute))
            found = literals.get(key)
            if found is None:
                op = Operation("baechi.literal", (), (type_,), {"value": attribute})
                op.parent = block
                ops.append(op)
                found = literals[key] = op.results[0]
            return found

        def constant(aval: Any, value: Any) -> Value:
            if id(value) in given:
                return given[id(value)]
            if is_scalar(aval):
                return literal(aval, value)
            op = Operation(
                "baechi.constant",
                (),
                (self._type(aval),),
                {"baechi.eqn": self._constant_record(value)},
            )
            op.parent = block
            ops.append(op)
            return op.results[0]

        for var, value in compat.jaxpr_consts(jaxpr):
            env[var] = constant(var.aval, value)

        def read(atom: Any) -> Value:
            if type(atom) is not compat.Literal:
                return env[atom]
            if is_scalar(atom.aval):
                return literal(atom.aval, atom.val)
            return constant(atom.aval, atom.val)

        token_types: tuple[Type, ...] = ()
        for eqn in jaxpr.eqns:
            index = self._records.get(id(eqn))
            if index is None:
                index = self._record(eqn)
            record = self.equations[index]
            attributes = dict(record.attributes)
            attributes["baechi.eqn"] = index
            operands = [read(atom) for atom in eqn.invars]
            result_types = [self._type(var.aval) for var in eqn.outvars]
            kinds = _effect_kinds(eqn.effects) if eqn.effects else {}
            location = self._location(eqn.source_info)
            regions: list[Region] = []
            if record.jaxprs:
                regions = self._regions(record, attributes, operands, given, kinds, constant)
            if kinds:
                token_types = (_TOKEN,) * len(kinds)
                operands += [self._token(kind, kinds, tokens, block) for kind in kinds]
                result_types += token_types
            op = Operation(record.name, operands, result_types, attributes, regions, location)
            op.parent = block
            ops.append(op)
            results = op.results
            if kinds:
                tokens.update(zip(kinds, results[-len(kinds) :]))
            for var, result in zip(eqn.outvars, results):
                env[var] = result
        return [read(atom) for atom in jaxpr.outvars]

    def _regions(
        self,
        record: EquationRecord,
        attributes: dict[str, Attribute],
        operands: list[Value],
        given: Mapping[int, Value],
        kinds: Mapping[str, bool],
        constant: Any,
    ) -> list[Region]:
        """The regions of an op; puts hoisted constants in front of its operands."""
        attributes["baechi.regions"] = tuple(path for path, _ in record.jaxprs)
        hoisted = self._hoisted(record)
        for position, group in insertion_points(record.name, record.attributes, hoisted):
            operands[position:position] = [constant(c.aval, c.value) for c in group]
        total = 0
        for name, count in counts(record.name, record.attributes, hoisted).items():
            if name:
                before = attributes.get(name, 0)
                assert isinstance(before, int)
                attributes[name] = before + count
            total += count
        if total:
            attributes["baechi.hoisted"] = total
        regions: list[Region] = []
        for (_, jaxpr), own in zip(record.jaxprs, hoisted):
            inputs = compat.jaxpr_inputs(jaxpr)
            types = [self._type(c.aval) for c in own]
            types += [self._type(var.aval) for var in inputs]
            block = Block(types + [_TOKEN] * len(kinds))
            arguments = block.arguments
            end = len(types)
            inner = dict(zip((c.key for c in own), arguments))
            tokens: dict[str, Value] = dict(zip(kinds, arguments[end:]))
            outputs = self._fill(block, jaxpr, arguments[len(own) : end], inner, tokens)
            outputs += [tokens[kind] for kind in kinds]
            block.append(Operation("baechi.yield", outputs))
            regions.append(Region([block]))
        return regions

    # Constants --------------------------------------------------------------------------------

    def _nested_constants(self, jaxpr: Any) -> list[Constant]:
        """What the jaxprs inside ``jaxpr`` need as values from around it."""
        found = self._hoistable.get(id(jaxpr))
        if found is None:
            groups: list[list[Constant]] = []
            for eqn in jaxpr.eqns:
                record = self._record_of(eqn)
                if record.jaxprs:
                    groups += filter(None, self._hoisted(record))
            found = self._hoistable[id(jaxpr)] = merge(groups)
        return found

    def _hoisted(self, record: EquationRecord) -> list[list[Constant]]:
        """For each region of an op, the constants it takes as leading arguments."""
        if not record.jaxprs:
            return []
        if record.name not in EXTENSIBLE:
            return [[] for _ in record.jaxprs]
        groups = []
        for _, jaxpr in record.jaxprs:
            own = [
                Constant(value, var.aval)
                for var, value in compat.jaxpr_consts(jaxpr)
                if not is_scalar(var.aval)
            ]
            groups.append(merge([own, self._nested_constants(jaxpr)]))
        if record.name == "jax.cond":  # every branch takes the same operands
            return [merge(groups)] * len(groups)
        return groups

    def _constant_record(self, value: Any) -> int:
        index = self._constant_records.get(id(value))
        if index is None:
            index = self._constant_records[id(value)] = len(self.equations)
            self.equations.append(EquationRecord(None, constant=value))
        return index

    # Equations ----------------------------------------------------------------------------------

    def _record_of(self, eqn: Any) -> EquationRecord:
        index = self._records.get(id(eqn))
        return self.equations[self._record(eqn) if index is None else index]

    def _record(self, eqn: Any) -> int:
        name = eqn.primitive.name
        attributes, jaxprs = split_params(compat.read_params(eqn))
        record = EquationRecord(eqn, attributes, jaxprs, name=f"jax.{_RENAMED.get(name, name)}")
        index = self._records[id(eqn)] = len(self.equations)
        self.equations.append(record)
        return index

    def _token(
        self, kind: str, kinds: Mapping[str, bool], tokens: dict[str, Value], block: Block
    ) -> Value:
        found = tokens.get(kind)
        if found is None:
            attributes: dict[str, Attribute] = {"effect": kind}
            if kinds[kind]:
                attributes["ordered"] = Unit()
            op = block.append(Operation("baechi.token", (), (_TOKEN,), attributes))
            found = tokens[kind] = op.results[0]
        return found

    # Types and locations ------------------------------------------------------------------------

    def _type(self, aval: Any) -> Type:
        found = self._types.get(id(aval))
        if found is None:
            found = self._types[id(aval)] = type_of(aval)
        return found

    def _location(self, source_info: Any) -> Location:
        traceback, stack = source_info.traceback, source_info.name_stack
        key = (id(traceback), id(stack))
        location = self._locations.get(key)
        if location is None:
            name = self._stacks.get(id(stack))
            if name is None:
                name = self._stacks[id(stack)] = str(stack)
            file, line, column = compat.user_frame(traceback)
            location = Location(file, line, column, name) if file or name else UNKNOWN
            self._locations[key] = location
        return location


def _effect_kinds(effects: Iterable[Any]) -> Mapping[str, bool]:
    """The kinds of effect of an equation, in a fixed order, and whether JAX orders them."""
    kinds: dict[str, bool] = {}
    for effect in effects:
        kind = compat.effect_kind(effect)
        if kind is not None:
            kinds[kind] = compat.is_ordered(effect)
    return dict(sorted(kinds.items()))
