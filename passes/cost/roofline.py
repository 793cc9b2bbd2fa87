"""Flops, bytes and seconds of one operation: a roofline model.

Seconds on a device are ``max(flops / flops_per_second, bytes / bytes_per_second)``. A
transcendental function counts as ``TRANSCENDENTAL_FLOPS``. Bytes are what the operation reads and
writes when it is a kernel of its own; what fusion saves is in ``passes/cost/fusion.py``.

Loops and branches are in ``passes/cost/operation.py``. A primitive that the tables do not know is
charged as elementwise work on its bytes, and logged once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baechi_jax.ir.attributes import Attribute, DictAttr, as_tuple
from baechi_jax.ir.core import Operation
from baechi_jax.ir.topology import Device
from baechi_jax.ir.types import TensorType, nbytes
from baechi_jax.passes.cost.layout import conv_expansion
from baechi_jax.passes.cost.linear_algebra import LINEAR_ALGEBRA
from baechi_jax.passes.cost.primitives import (
    BITCAST,
    BROADCAST,
    CONTROL,
    KERNEL,
    KINDS,
    MOVE,
    NOTHING,
    PER_ELEMENT,
    REDUCE,
    Kind,
)

_log = logging.getLogger(__name__)

#: Flops that one transcendental function is worth: a polynomial with range reduction.
TRANSCENDENTAL_FLOPS = 10.0

_logged: set[str] = set()

_KINDS = {f"jax.{primitive}": kind for primitive, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Count:
    """Work of one operation: flops, transcendental functions, bytes read and written."""

    flops: float = 0.0
    transcendentals: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0

    @property
    def work(self) -> float:
        """Flops with transcendental functions weighed in."""
        return self.flops + TRANSCENDENTAL_FLOPS * self.transcendentals


def kind_of(op: Operation) -> Kind:
    """How XLA treats ``op``; an unknown primitive is elementwise, and logged once."""
    name = op.name
    kind = _KINDS.get(name)
    if kind is not None:
        return kind
    if not name.startswith("jax."):
        return NOTHING
    if name not in _logged:
        _logged.add(name)
        _log.warning(
            "no cost is known for primitive '%s' (%s); charged as elementwise work on its bytes",
            name[4:],
            op.location,
        )
    return KERNEL


def is_known(primitive: str) -> bool:
    """Whether the model has figures for the primitive of this name."""
    return primitive in KINDS


def count(op: Operation) -> Count:
    """The work of ``op`` alone; nothing for a loop, a branch or a call."""
    kind = kind_of(op)
    if kind is NOTHING or kind is CONTROL or kind is BITCAST:
        return Count()
    name = op.name[4:]
    read = float(sum(nbytes(value.type) for value in op.operands))
    written = float(sum(nbytes(result.type) for result in op.results))
    per_element = PER_ELEMENT.get(name)
    if per_element is not None:
        size = max(map(_size, op.results), default=0)
        return Count(per_element[0] * size, per_element[1] * size, read, written)
    counter = _COUNTERS.get(name)
    if counter is not None:
        return counter(op, read, written)
    if kind in (BROADCAST, MOVE):
        return Count(0.0, 0.0, read, written)
    return Count(max(read, written) / 4, 0.0, read, written)


def seconds(work: float, moved_bytes: float, device: Device) -> float:
    """Roofline seconds of one kernel, without the launch."""
    return max(work / device.flops_per_second, moved_bytes / device.bytes_per_second)


# Single primitives --------------------------------------------------------------------------------


def _dot_general(op: Operation, read: float, written: float) -> Count:
    lhs = _tensor(op, 0)
    (contracting, _), _ = _pairs(op.attributes.get("dimension_numbers"))
    depth = math.prod(lhs.shape[axis] for axis in contracting)
    return Count(2.0 * depth * _size(op.results[0]), 0.0, read, written)


def _conv(op: Operation, read: float, written: float) -> Count:
    out, lhs, rhs = op.results[0].type, _tensor(op, 0), _tensor(op, 1)
    assert isinstance(out, TensorType)
    numbers = op.attributes.get("dimension_numbers")
    assert isinstance(numbers, DictAttr)
    lhs_spec, rhs_spec = _ints(numbers["lhs_spec"]), _ints(numbers["rhs_spec"])
    out_spec = _ints(numbers["out_spec"])
    spatial = len(lhs_spec) - 2
    strides = _ints(op.attributes.get("window_strides")) or (1,) * spatial
    lhs_dilation = _ints(op.attributes.get("lhs_dilation")) or (1,) * spatial
    rhs_dilation = _ints(op.attributes.get("rhs_dilation")) or (1,) * spatial
    padding = op.attributes.get("padding")
    assert isinstance(padding, tuple)
    taps = 1.0
    for axis in range(spatial):
        low = _ints(padding[axis])[0]
        taps *= _valid_taps(
            out.shape[out_spec[2 + axis]],
            lhs.shape[lhs_spec[2 + axis]],
            rhs.shape[rhs_spec[2 + axis]],
            strides[axis],
            low,
            lhs_dilation[axis],
            rhs_dilation[axis],
        )
    batch, features = out.shape[out_spec[0]], out.shape[out_spec[1]]
    flops = 2.0 * taps * batch * features * rhs.shape[rhs_spec[1]] * conv_expansion(op)
    return Count(flops, 0.0, read, written)


def _valid_taps(
    out: int, lhs: int, rhs: int, stride: int, low: int, lhs_dilation: int, rhs_dilation: int
) -> int:
    """Pairs of output position and kernel tap along one axis that fall on an input element."""
    if lhs == 0:
        return 0
    extent = (lhs - 1) * lhs_dilation
    total = 0
    for tap in range(rhs):
        first = tap * rhs_dilation - low
        if lhs_dilation == 1:
            start = max(0, -(first // stride))
            stop = min(out, (extent - first) // stride + 1)
            total += max(0, stop - start)
            continue
        total += sum(
            1
            for position in range(out)
            if 0 <= (at := first + position * stride) <= extent and at % lhs_dilation == 0
        )
    return total


def _reduce(op: Operation, read: float, written: float) -> Count:
    return Count(float(_size_in(op, 0) - _size(op.results[0])), 0.0, read, written)


def _argminmax(op: Operation, read: float, written: float) -> Count:
    return Count(9.0 * _size_in(op, 0), 0.0, read, written)


def _reduce_window(op: Operation, read: float, written: float) -> Count:
    window = _ints(op.attributes.get("window_dimensions"))
    return Count(float(_size(op.results[0]) * max(0, math.prod(window) - 1)), 0.0, read, written)


def _select_and_scatter(op: Operation, _read: float, _written: float) -> Count:
    """The gradient of a pooling window.

    XLA reduces each window together with the coordinates of its elements, then scatters.
    """
    # The operand comes second in select_and_scatter_add, first in select_and_scatter.
    windows, elements = sorted((_size_in(op, 0), _size_in(op, 1)))
    rank = len(_tensor(op, 0).shape)
    return Count(
        float((7 + rank) * (elements - windows) + windows),
        0.0,
        float(elements * (8 + 4 * rank) + windows * (8 + 8 * rank)),
        float(elements * (8 + 4 * rank) + windows * (4 + 8 * rank)),
    )


def _select_and_gather(op: Operation, read: float, written: float) -> Count:
    window = _ints(op.attributes.get("window_dimensions"))
    return Count(float(_size(op.results[0]) * 3 * math.prod(window)), 0.0, read, written)


def _cumulative(op: Operation, read: float, written: float) -> Count:
    size = _size(op.results[0])
    each = 8.0 if op.name == "jax.cumlogsumexp" else 1.0
    transcendentals = 2.0 if op.name == "jax.cumlogsumexp" else 0.0
    # XLA reads and writes in blocks of 16, twice.
    return Count(17.0 * each * size, 17.0 * transcendentals * size, read + written, 2 * written)


def _sort(op: Operation, read: float, written: float) -> Count:
    operand = _tensor(op, 0)
    axis = _int(op.attributes.get("dimension"), len(operand.shape) - 1)
    length = operand.shape[axis] if operand.shape else 1
    return Count(operand.size * math.ceil(math.log2(max(length, 2))), 0.0, read, written)


def _top_k(op: Operation, read: float, written: float) -> Count:
    k = _int(op.attributes.get("k"), 1)
    return Count(float(_size_in(op, 0)) * max(1.0, math.log2(max(k, 2))), 0.0, read, written)


def _fft(op: Operation, read: float, written: float) -> Count:
    lengths = _ints(op.attributes.get("fft_lengths"))
    flops = 8.0 * _size_in(op, 0) * math.log2(max(math.prod(lengths), 2))
    return Count(flops, 0.0, read, written)


def _gather(op: Operation, _read: float, written: float) -> Count:
    indices = nbytes(op.operands[1].type)
    return Count(0.0, 0.0, written + indices, written)


def _dynamic_slice(_op: Operation, _read: float, written: float) -> Count:
    return Count(0.0, 0.0, written, written)


def _slice(_op: Operation, _read: float, written: float) -> Count:
    return Count(0.0, 0.0, written, written)


def _dynamic_update_slice(op: Operation, read: float, written: float) -> Count:
    # The result starts as a copy of the operand; then the update is written over its place.
    return Count(0.0, 0.0, read, written + nbytes(op.operands[1].type))


def _scatter(op: Operation, read: float, written: float) -> Count:
    updates = nbytes(op.operands[2].type) if len(op.operands) > 2 else 0
    # The result starts as a copy of the operand; then each update reads and writes its place.
    flops = 0.0 if op.name == "jax.scatter" else float(_size_in(op, 2))
    return Count(flops, 0.0, read + updates, written + updates)


def _integer_pow(op: Operation, read: float, written: float) -> Count:
    power = abs(_int(op.attributes.get("y"), 2))
    multiplications = max(0, power.bit_length() - 1) + max(0, power.bit_count() - 1)
    divisions = 1 if _int(op.attributes.get("y"), 2) < 0 else 0
    size = _size(op.results[0])
    return Count(float((multiplications + divisions) * size), 0.0, read, written)


def _linear_algebra(op: Operation, read: float, written: float) -> Count:
    flops, times = LINEAR_ALGEBRA[op.name[4:]]
    # What is copied is read and written.
    moved = (read + written) * times / 2
    return Count(flops(op), 0.0, moved, moved)


def _symmetric_product(op: Operation, read: float, written: float) -> Count:
    """A whole matrix product, then a sum with the other operand as a second kernel."""
    flops = 2.0 * _size(op.results[0]) * (_tensor(op, 0).shape[-1] + 1)
    return Count(flops, 0.0, read + written, 2 * written)


def _linear(factor: float) -> Callable[[Operation, float, float], Count]:
    def counter(op: Operation, read: float, written: float) -> Count:
        return Count(factor * max(_size(r) for r in op.results), 0.0, read, written)

    return counter


def _free(_op: Operation, read: float, written: float) -> Count:
    return Count(0.0, 0.0, read, written)


_COUNTERS: dict[str, Callable[[Operation, float, float], Count]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _conv,
    **dict.fromkeys((name for name, kind in KINDS.items() if kind is REDUCE), _reduce),
    "argmax": _argminmax,
    "argmin": _argminmax,
    **dict.fromkeys(
        "reduce_window reduce_window_max reduce_window_min reduce_window_sum".split(),
        _reduce_window,
    ),
    "select_and_scatter": _select_and_scatter,
    "select_and_scatter_add": _select_and_scatter,
    "select_and_gather_add": _select_and_gather,
    **dict.fromkeys("cumsum cumprod cummax cummin cumlogsumexp".split(), _cumulative),
    "sort": _sort,
    "top_k": _top_k,
    "approx_top_k": _top_k,
    "fft": _fft,
    "gather": _gather,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    **dict.fromkeys(
        "scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub".split(), _scatter
    ),
    "integer_pow": _integer_pow,
    **dict.fromkeys(LINEAR_ALGEBRA, _linear_algebra),
    "symmetric_product": _symmetric_product,
    "lu_pivots_to_permutation": _linear(2.0),
    "bitcast_convert_type": _free,
    "copy": _free,
    "device_put": _free,
}


# Reading attributes -------------------------------------------------------------------------------


def _size(value: object) -> int:
    type_ = getattr(value, "type", None)
    return type_.size if isinstance(type_, TensorType) else 0


def _size_in(op: Operation, index: int) -> int:
    return _size(op.operands[index]) if index < len(op.operands) else 0


def _tensor(op: Operation, index: int) -> TensorType:
    type_ = op.operands[index].type
    assert isinstance(type_, TensorType), f"{op!r} reads no tensor as operand {index}"
    return type_


def _int(attribute: Attribute | None, default: int) -> int:
    return attribute if isinstance(attribute, int) else default


def _ints(attribute: Attribute | None) -> tuple[int, ...]:
    if not isinstance(attribute, tuple):
        return ()
    return tuple(entry for entry in attribute if isinstance(entry, int))


def _pairs(
    attribute: Attribute | None,
) -> tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]:
    """``dimension_numbers`` of a dot: contracting and batch axes of both sides."""
    contracting, batch = as_tuple(attribute)
    contracting, batch = as_tuple(contracting), as_tuple(batch)
    return (
        (_ints(contracting[0]), _ints(contracting[1])),
        (_ints(batch[0]), _ints(batch[1])),
    )
