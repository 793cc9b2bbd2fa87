"""The walk of ``plan-memory`` over the operations in issue order.

Host and devices run apart: when the host issues an operation its results are allocated at once,
whether or not the device has come to it. What has ended is known only from a value that the host
has waited for: then its producer has ended, and everything that the producer depends on by data.
Nothing else is proof, not even an earlier place in the order of the same device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from baechi_jax.ir.attributes import as_tuple
from baechi_jax.ir.core import Operation, Value
from baechi_jax.ir.cost import Cost, DeviceMemory
from baechi_jax.ir.topology import Topology
from baechi_jax.passes.cost.buffers import donated_pairs
from baechi_jax.passes.cost.operation import devices_of
from baechi_jax.passes.cost.program import program_of
from baechi_jax.passes.donation import Dying, align_results, choose_donations
from baechi_jax.passes.insert_transfers import RECV, SEND
from baechi_jax.passes.memory_account import Account, Buffer
from baechi_jax.passes.memory_measured import MeasuredMemory
from baechi_jax.passes.peak_table import LiveBuffer, PeakTable
from baechi_jax.passes.plan_errors import MemoryLimitError
from baechi_jax.passes.tasks import TASK
from baechi_jax.passes.values import argument_text, describe_value

WAIT = "baechi.wait"


class MemoryWalk:
    """Donations, waits and peaks of one account. ``run`` decides, ``write`` writes into the IR."""

    def __init__(
        self,
        account: Account,
        topology: Topology,
        end_seconds: Sequence[float],
        *,
        wait_to_donate: bool = False,
        recost: bool = False,
        replan: bool = False,
        measured: MeasuredMemory | None = None,
    ) -> None:
        self.account = account
        self.topology = topology
        self.wait_to_donate = wait_to_donate
        self.recost = recost
        self.replan = replan
        self.measured = measured or MeasuredMemory()
        count = topology.size
        self.limits = [device.usable_bytes for device in topology.devices]
        self.peak_bytes = list(account.resident_bytes)
        self.peak_at = [-1] * count
        self.run_ahead_bytes = list(account.resident_bytes)
        self.donated: list[list[Buffer]] = [[] for _ in account.ops]
        #: Operand and result index of each donation.
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in account.ops]
        #: Values to wait for before each operation.
        self.waits: list[list[Value]] = [[] for _ in account.ops]
        self._hoisted: dict[Operation, int] = {}
        self._position = {op: index for index, op in enumerate(account.ops)}
        self._live = list(account.resident_bytes)
        self._ahead = list(account.resident_bytes)
        self._proven = [False] * len(account.ops)
        #: Per device: issued operations that are not proven to have ended and hold memory there.
        self._pending: list[dict[int, int]] = [{} for _ in range(count)]
        self._end = end_seconds

    # Walking --------------------------------------------------------------------------------

    def run(self) -> None:
        """Walk once; fills the public lists."""
        account = self.account
        for index, op in enumerate(account.ops):
            if op.name == TASK:
                self._choose_donations(index)
                self._look_up(index)
            taken = sum(buffer.nbytes for buffer in self.donated[index])
            for device in account.devices[index]:
                allocated = -taken + sum(
                    buffer.nbytes for buffer in account.allocates[index] if buffer.device == device
                )
                now = self._live[device] + allocated + account.temporary_bytes[index]
                if now > self.peak_bytes[device]:
                    self.peak_bytes[device], self.peak_at[device] = now, index
                self._live[device] += allocated
                self._issue(index, device, allocated)
            donated = set(map(id, self.donated[index]))
            for buffer in account.frees[index]:
                if id(buffer) in donated:
                    continue
                self._live[buffer.device] -= buffer.nbytes
                pending = self._pending[buffer.device]
                pending[index] = pending.get(index, 0) + buffer.nbytes

    def _choose_donations(self, index: int) -> None:
        op = self.account.ops[index]
        place = {value: i for i, value in enumerate(op.operands)}
        dying = [
            (place[buffer.value], buffer) for buffer in self.account.frees[index] if buffer.nbytes
        ]
        if dying and op.results:
            dying.sort(key=lambda each: each[0])
            pairs = choose_donations(op, [Dying(i, buffer.successor) for i, buffer in dying])
            paired = dict(pairs)
            for operand, buffer in dying:
                if operand in paired and self._copies_ended(buffer, index):
                    self.donated[index].append(buffer)
                    self.pairs[index].append((operand, paired[operand]))
        # Also where nothing is donated: the cost supposed that all is.
        if self.recost:
            self._recost(index)

    def _look_up(self, index: int) -> None:
        """The temporaries of a task that was compiled before, with what it then took over."""
        op = self.account.ops[index]
        kind = self.topology.devices[self.account.devices[index][0]].kind
        found = self.measured.exact(op, [operand for operand, _ in self.pairs[index]], kind)
        if found is not None:
            self.account.temporary_bytes[index] = found

    def _recost(self, index: int) -> None:
        """Correct the temporaries of a task, now that it is known what is donated.

        Its cost supposes that every operand may be donated, which takes most (XLA copies an operand
        that it must keep while it writes the result over it), or what an earlier plan donated.
        """
        op, known = self.account.ops[index], self.account.temporary_bytes[index]
        body = op.body
        ops, inputs, outputs = body.ops[:-1], body.arguments, body.terminator.operands
        if not (known or self.replan) or not donated_pairs(inputs, outputs, None):
            return
        before: set[int] | None = None
        if self.replan:
            earlier = as_tuple(op.attributes.get("baechi.donates", ()))
            before = {each for each in earlier if isinstance(each, int)}
        program = program_of(ops, inputs, outputs, devices_of(self.topology))
        supposed = program.temporary_bytes(inputs, outputs, before)
        order = align_results(op, self.pairs[index])
        donated = {operand for operand, _ in self.pairs[index]}
        found = program.temporary_bytes(inputs, body.terminator.operands, donated, order)
        needed = max(0, known - supposed + found)
        if donated:
            kept = program.temporary_bytes(inputs, body.terminator.operands, (), order)
            alone = max(0, known - supposed + kept)
            if needed - alone > sum(buffer.nbytes for buffer in self.donated[index]):
                # The copies that XLA makes of these operands take more than they give.
                self.donated[index].clear()
                self.pairs[index].clear()
                needed = alone
        self.account.temporary_bytes[index] = needed

    def _copies_ended(self, buffer: Buffer, index: int) -> bool:
        """Whether every send of ``buffer`` is proven to have ended, after a wait if allowed."""
        copies = [
            reader
            for reader in buffer.readers
            if self.account.ops[reader].name == SEND and not self._proven[reader]
        ]
        if not copies:
            return True
        if not self.wait_to_donate:
            return False
        witnesses = [self._witness(copy, index) for copy in copies]
        found = [witness for witness in witnesses if witness is not None]
        if len(found) < len(witnesses):
            return False
        self._wait(index, found)
        return True

    def _issue(self, index: int, device: int, allocated: int) -> None:
        """Allocate when issued; wait before, where the limit asks for it."""
        pending = self._pending[device]
        limit = self.limits[device]
        own = self.account.temporary_bytes[index]
        if self._ahead_of(device, own) + allocated > limit:
            self._make_room(index, device, allocated, own)
        self._ahead[device] += allocated
        if own:
            pending.setdefault(index, 0)
        self.run_ahead_bytes[device] = max(
            self.run_ahead_bytes[device], self._ahead_of(device, own)
        )

    def _ahead_of(self, device: int, own: int) -> int:
        """Bytes that may live on ``device`` now, with the largest temporaries that may run."""
        temporary = self.account.temporary_bytes
        at = self.account.devices
        most = max((temporary[op] for op in self._pending[device] if device in at[op]), default=0)
        return self._ahead[device] + max(most, own)

    def _make_room(self, index: int, device: int, allocated: int, own: int) -> None:
        """Wait for pending operations, those that end first first, until the limit holds."""
        chosen: list[Value] = []
        for op in sorted(self._pending[device], key=lambda op: (self._end[op], op)):
            if self._proven[op]:
                continue
            witness = self._witness(op, index)
            if witness is None:
                continue
            chosen.append(witness)
            self._prove(witness)
            if self._ahead_of(device, own) + allocated <= self.limits[device]:
                break
        self._add_wait(index, chosen)

    def _wait(self, index: int, values: Iterable[Value]) -> None:
        values = list(values)
        for value in values:
            self._prove(value)
        self._add_wait(index, values)

    def _add_wait(self, index: int, values: Iterable[Value]) -> None:
        for value in values:
            if value not in self.waits[index]:
                self.waits[index].append(value)
            owner = value.defining_op
            if owner is not None and owner.name == RECV and self._position[owner] > index:
                self._hoisted.setdefault(owner, index)

    def _prove(self, value: Value) -> None:
        """``value`` is computed: so is all that it depends on."""
        stack = [value]
        while stack:
            owner = stack.pop().defining_op
            if owner is None:
                continue
            op = self._position[owner]
            if self._proven[op]:
                continue
            self._proven[op] = True
            for device, pending in enumerate(self._pending):
                if op in pending:
                    self._ahead[device] -= pending.pop(op)
            stack.extend(owner.operands)

    def _witness(self, op: int, index: int) -> Value | None:
        """A value alive before operation ``index`` that proves the end of ``op``.

        Its own result, if one is alive; else the value that depends on it and ends first.
        """
        best: tuple[float, int] | None = None
        found: Value | None = None
        seen = {op}
        stack = [op]
        while stack:
            node = stack.pop()
            for result in self.account.ops[node].results:
                buffer = self.account.of.get(result)
                if buffer is not None and buffer.dies >= index:
                    rank = (self._end[node], node)
                    if best is None or rank < best:
                        best, found = rank, result
                for user in result.users:
                    reader = self._position.get(user)
                    if reader is None or reader in seen:
                        continue
                    # A receive can be moved up to here; anything else must have been issued.
                    if reader < index or user.name == RECV:
                        seen.add(reader)
                        stack.append(reader)
            if found is not None and node == op:
                return found
        return found

    # Results --------------------------------------------------------------------------------

    def excess_bytes(self) -> int:
        """Bytes by which the peaks pass the limits, over all devices."""
        return sum(max(0, peak - limit) for peak, limit in zip(self.peak_bytes, self.limits))

    def check_limits(self, func: Operation) -> None:
        """Raise MemoryLimitError for the device that is furthest over its limit."""
        over = [peak - limit for peak, limit in zip(self.peak_bytes, self.limits)]
        device = max(range(len(over)), key=lambda d: (over[d], -d))
        if over[device] <= 0:
            return
        table = self._peak_table(device)
        needed = tuple(
            peak + device.reserved_bytes
            for peak, device in zip(self.peak_bytes, self.topology.devices)
        )
        rows = "\n".join(table.lines())
        raise MemoryLimitError(
            f"{table.headline}. The largest buffers there then, with their share of the peak:\n"
            f"{rows}\n"
            f"This placement fits when memory_bytes is at least {list(needed)} per device; give "
            "the devices more, place again with a smaller memory scale, or add a device.",
            device=device,
            peak_bytes=self.peak_bytes[device],
            limit_bytes=self.limits[device],
            needed_bytes=needed,
            peak=table,
        )

    def _peak_table(self, device: int) -> PeakTable:
        """What lives on ``device`` at its peak."""
        at = self.peak_at[device]
        account = self.account
        gone = set() if at < 0 else set(map(id, self.donated[at]))
        buffers = [
            describe(buffer)
            for buffer in account.buffers
            if buffer.device == device
            and buffer.born <= at <= buffer.dies
            # What a task takes over counts as its result.
            and id(buffer) not in gone
        ]
        when = "at the start of the step"
        if at == len(account.ops) - 1:
            when = "at the end of the step"
        elif at >= 0:
            op = account.ops[at]
            name = op.attributes.get("sym_name", op.name)
            when = f"while '{name}' at {op.location} runs"
            temporary = account.temporary_bytes[at]
            buffers.append(LiveBuffer(temporary, f"temporaries of '{name}'", str(op.location)))
        return PeakTable.of(
            device,
            self.topology.devices[device].name,
            self.peak_bytes[device],
            self.limits[device],
            when,
            buffers,
        )

    def write(self, func: Operation) -> None:
        """Write frees, donations, waits and peaks into ``func``."""
        account = self.account
        order: list[Operation] = []
        hoisted: dict[int, list[Operation]] = {}
        for recv, index in self._hoisted.items():
            hoisted.setdefault(index, []).append(recv)
        for index, op in enumerate(account.ops):
            for key in ("baechi.frees", "baechi.donates"):
                op.attributes.pop(key, None)
            order.extend(hoisted.get(index, ()))
            if self.waits[index]:
                order.append(Operation(WAIT, self.waits[index], (), {}, (), op.location))
            if op not in self._hoisted:
                order.append(op)
            cost = op.attributes.get("baechi.cost")
            if isinstance(cost, Cost):
                temporary = account.temporary_bytes[index]
                op.attributes["baechi.cost"] = replace(cost, temporary_bytes=temporary)
            for key, buffers in (
                ("baechi.frees", account.frees[index]),
                ("baechi.donates", self.donated[index]),
            ):
                values = {buffer.value for buffer in buffers}
                indices = tuple(i for i, value in enumerate(op.operands) if value in values)
                if indices:
                    op.attributes[key] = indices
        func.body.set_ops(order)
        func.attributes["baechi.memory"] = tuple(
            DeviceMemory(peak, ahead, resident, limit)
            for peak, ahead, resident, limit in zip(
                self.peak_bytes, self.run_ahead_bytes, account.resident_bytes, self.limits
            )
        )


def describe(buffer: Buffer) -> LiveBuffer:
    """An argument's path, or what computed the value and its source line."""
    if buffer.name:
        return LiveBuffer(buffer.nbytes, argument_text(buffer.name))
    return LiveBuffer(buffer.nbytes, *describe_value(buffer.value))
