"""Transfers: each channel has two ends, and each value goes to a device once."""

from __future__ import annotations

from baechi_jax.ir.core import Value
from baechi_jax.ir.types import TokenType, unplaced
from baechi_jax.passes.plan_checks.view import PlanView, Step, place_of
from baechi_jax.passes.plan_errors import (
    ChannelError,
    DuplicateTransferError,
    TokenTransferError,
)


def check_channels(view: PlanView) -> None:
    """Channel numbers are unique, and both ends of each are there and fit."""
    sends: dict[int, Step] = {}
    for step in view.steps:
        if step.kind != "send":
            continue
        channel, target = _number(step, "channel"), _number(step, "to")
        if channel in sends:
            raise ChannelError(f"{step} and {sends[channel]} use one channel")
        sends[channel] = step
        if target == step.device or target >= view.topology.size:
            raise ChannelError(f"{step} sends to device {target}")
        if not any(user.name == "baechi.recv" for user in step.op.result.users):
            raise ChannelError(f"{step} is received nowhere")
    received: dict[int, Step] = {}
    for step in view.steps:
        if step.kind != "recv":
            continue
        channel = _number(step, "channel")
        if channel in received:
            raise ChannelError(f"{step} and {received[channel]} receive from one channel")
        received[channel] = step
        maker = view.maker(step.reads[0])
        if maker is None or maker.kind != "send":
            raise ChannelError(f"{step} reads a value that no send put in flight")
        if _number(maker, "channel") != channel:
            raise ChannelError(f"{step} receives what {maker} sent")
        if step.device != _number(maker, "to"):
            raise ChannelError(
                f"{step} gives {step.op.result.type}, but {maker} sends to device "
                f"{_number(maker, 'to')}"
            )
        if unplaced(step.op.result.type) != unplaced(maker.reads[0].type):
            raise ChannelError(
                f"{step} gives {step.op.result.type}, but {maker} sends {maker.reads[0].type}"
            )


def check_transfers(view: PlanView) -> None:
    """No token is sent, and no value goes to a device where it already is or was sent."""
    seen: dict[tuple[Value, int], Step] = {}
    for step in view.steps:
        if step.kind != "send":
            continue
        value = step.reads[0]
        if isinstance(unplaced(value.type), TokenType):
            raise TokenTransferError(
                f"{step} sends an effect's token; ordered effects must share a device"
            )
        origin = _origin(view, value)
        target = _number(step, "to")
        if place_of(origin) == target:
            raise DuplicateTransferError(
                f"{step} sends {view.name(origin)} back to device {target}, where it comes from"
            )
        first = seen.setdefault((origin, target), step)
        if first is not step:
            raise DuplicateTransferError(
                f"{step} sends {view.name(origin)} to device {target}, as {first} does already"
            )


def _origin(view: PlanView, value: Value) -> Value:
    """The value of which ``value`` is a copy."""
    while True:
        maker = view.maker(value)
        if maker is None or maker.kind not in ("send", "recv"):
            return value
        value = maker.reads[0]


def _number(step: Step, key: str) -> int:
    value = step.op.attributes[key]
    assert isinstance(value, int)
    return value
