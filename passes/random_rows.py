"""Some rows of one draw of random bits, without drawing the others.

With JAX's ``jax_threefry_partitionable`` (its default) word ``i`` of a draw is threefry of the key
and of the counter ``i`` alone, both halves of its result combined by exclusive or. So any rows are
drawn from their own counters.

Assumes draws of fewer than 2^32 words of 32 bits, with one key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from baechi_jax.ir.attributes import Attribute, IntegerAttr
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.types import ScalarType, TensorType, unplaced
from baechi_jax.passes.axis.rule import shape_of
from baechi_jax.passes.tasks import LITERAL

_WORD = "ui32"
_THREEFRY = '!baechi.key<"fry">'


def is_counted(op: Operation) -> bool:
    """Whether ``rows_of_bits`` can draw the rows of ``op``, if draws are partitionable."""
    if op.name != "jax.random_bits" or op.attributes.get("bit_width") != 32:
        return False
    key = unplaced(op.operands[0].type)
    shape = shape_of(op.results[0])
    one_key = isinstance(key, TensorType) and key.shape == () and key.element == _THREEFRY
    return one_key and bool(shape) and 0 < math.prod(shape) < 1 << 32


def rows_of_bits(op: Operation, start: int, size: int) -> list[Operation]:
    """Operations the last of which gives rows ``start`` to ``start + size`` of the draw ``op``."""
    rest = shape_of(op.results[0])[1:]
    count = math.prod(rest)
    made: list[Operation] = []

    def emit(
        name: str,
        operands: Sequence[Value],
        shape: tuple[int, ...],
        attributes: Mapping[str, Attribute] | None = None,
        results: int = 1,
    ) -> Value:
        types = [TensorType(shape, _WORD)] * results
        made.append(Operation(name, operands, types, attributes, (), op.location))
        return made[-1].results[0]

    def literal(value: int) -> Value:
        return emit(LITERAL, [], (), {"value": IntegerAttr(value, ScalarType(_WORD))})

    flat = (size * count,)

    def everywhere(value: Value) -> Value:
        return emit(
            "jax.broadcast_in_dim", [value], flat, {"shape": flat, "broadcast_dimensions": ()}
        )

    words = emit("jax.random_unwrap", [op.operands[0]], (2,))
    halves: list[Value] = []
    for index in range(2):
        limits: dict[str, Attribute] = {"start_indices": (index,), "limit_indices": (index + 1,)}
        half = emit("jax.slice", [words], (1,), limits)
        halves.append(everywhere(emit("jax.squeeze", [half], (), {"dimensions": (0,)})))
    counts: dict[str, Attribute] = {"dimension": 0, "dtype": ScalarType(_WORD), "shape": flat}
    counters = emit("jax.iota", [], flat, counts)
    counters = emit("jax.add", [counters, everywhere(literal(start * count))], flat)
    emit("jax.threefry2x32", [*halves, everywhere(literal(0)), counters], flat, results=2)
    bits = emit("jax.xor", made[-1].results, flat)
    emit("jax.reshape", [bits], (size, *rest), {"new_sizes": (size, *rest)})
    return made
