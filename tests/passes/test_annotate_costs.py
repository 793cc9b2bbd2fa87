"""Costs on every operation, from the model or from a table; fused work charged once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from baechi_jax.ir.core import Module, Operation
from baechi_jax.ir.cost import Cost
from baechi_jax.ir.errors import PassError
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.ir.topology import Device, Link, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.passes.annotate_costs import AnnotateCosts
from baechi_jax.passes.cost.table import CostTable, Entry
from baechi_jax.passes.cost.task import task_cost
from baechi_jax.passes.inline_calls import InlineCalls

_TWO_KINDS = Topology(
    (
        Device(kind="cpu", flops_per_second=1e9, bytes_per_second=1e9, launch_seconds=0.0),
        Device(kind="gpu", flops_per_second=1e12, bytes_per_second=1e11, launch_seconds=1e-3),
    ),
    (Link(0, 1), Link(1, 0)),
)


def _f(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, "float32")


def _module(fn: Callable[..., Any], *args: Any, topology: Topology = _TWO_KINDS) -> Module:
    module = trace(fn, args).module
    module.attributes["baechi.topology"] = topology
    InlineCalls().run(module)
    return module


def _cost(op: Operation) -> Cost:
    cost = op.attributes["baechi.cost"]
    assert isinstance(cost, Cost)
    return cost


def _whole(module: Module) -> Cost:
    body = module.main.body
    topology = module.attributes["baechi.topology"]
    assert isinstance(topology, Topology)
    return task_cost(body.ops[:-1], body.arguments, body.terminator.operands, topology)


def _layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w + 1.0) * 2.0


def test_every_operation_gets_a_cost_for_each_kind_and_it_survives_the_text() -> None:
    module = _module(_layer, _f(64, 64), _f(64, 64))
    AnnotateCosts().run(module)
    for op in module.main.body.ops[:-1]:
        assert len(_cost(op).seconds) == 2
    again = parse_module(print_module(module))
    assert [op.attributes.get("baechi.cost") for op in again.main.body.ops] == [
        op.attributes.get("baechi.cost") for op in module.main.body.ops
    ]


def test_fused_elementwise_work_moves_its_bytes_once() -> None:
    module = _module(lambda x: jnp.sin(x * 2.0 + 1.0) - x, _f(1024, 1024))
    AnnotateCosts().run(module)
    alone = sum(_cost(op).read_bytes for op in module.main.body.ops[:-1])
    whole = _whole(module)
    assert whole.read_bytes == 4 * 1024**2
    assert whole.written_bytes == 4 * 1024**2
    assert alone > 3 * whole.read_bytes
    assert whole.temporary_bytes == 0
    assert whole.output_bytes == 4 * 1024**2


def test_a_task_pays_one_launch() -> None:
    module = _module(_layer, _f(64, 64), _f(64, 64))
    AnnotateCosts().run(module)
    cpu, gpu = _whole(module).seconds
    assert gpu == pytest.approx(1e-3, rel=0.01)
    assert cpu == pytest.approx(2 * 64**3 / 1e9, rel=0.5)


def test_a_task_costs_the_same_with_and_without_annotation() -> None:
    module = _module(_layer, _f(64, 64), _f(64, 64))
    bare = _whole(module)
    AnnotateCosts().run(module)
    assert _whole(module) == bare


# Tables -------------------------------------------------------------------------------------------


def _product(module: Module) -> Operation:
    return next(op for op in module.main.body.ops if op.name == "jax.dot_general")


def _table(tmp_path: Path, module: Module, **entry: Any) -> str:
    path = tmp_path / "costs.json"
    key = (fingerprint(_product(module)), "cpu")
    CostTable({key: Entry(**entry)}).save(path)
    return str(path)


def test_a_measured_cost_takes_the_place_of_the_model(tmp_path: Path) -> None:
    module = _module(_layer, _f(64, 64), _f(64, 64))
    AnnotateCosts().run(module)
    analytic = _cost(_product(module))
    table = _table(tmp_path, module, seconds=0.25, temporary_bytes=4096, name="x @ w")
    AnnotateCosts(source="table", table=table).run(module)
    measured = _cost(_product(module))
    # Only the kind that was measured.
    assert measured.seconds == (0.25, analytic.seconds[1])
    assert measured.temporary_bytes == 4096
    assert measured.flops == analytic.flops
    assert _whole(module).seconds[0] >= 0.25


def test_measured_elementwise_work_counts_when_it_is_fused(tmp_path: Path) -> None:
    module = _module(lambda x: jnp.sin(x) * 2.0, _f(1024))
    AnnotateCosts().run(module)
    before = _whole(module).seconds[0]
    entries = {
        (fingerprint(op), "cpu"): Entry(10 * _cost(op).seconds[0])
        for op in module.main.body.ops[:-1]
        if op.name.startswith("jax.")
    }
    path = tmp_path / "costs.json"
    CostTable(entries).save(path)
    AnnotateCosts(source="table", table=str(path)).run(module)
    assert _whole(module).seconds[0] == pytest.approx(10 * before)


def test_a_table_reads_back_as_it_was_written() -> None:
    table = CostTable(
        {("a", "cpu"): Entry(1e-3, 12, "name"), ("b", "gpu"): Entry(2.0), ("b", "cpu"): Entry(0.0)}
    )
    assert CostTable.from_json(table.to_json()) == table


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "else"}, 'expected "format": "baechi-costs"'),
        ({"version": 2}, "table version 2 is not known; this release reads 1"),
        ({"entries": {}}, "'entries' of the table of costs must be a list"),
        ({"entries": [3]}, r"entries\[0\] must be an object, found 3"),
        ({"entries": [{"operation": "a"}]}, r"entries\[0\].kind must be a string, found None"),
        (
            {"entries": [{"operation": "a", "kind": "cpu", "seconds": -1}]},
            r"entries\[0\].seconds must be a number >= 0, found -1",
        ),
        (
            {"entries": [{"operation": "a", "kind": "cpu", "seconds": 1, "temporary_bytes": 0.5}]},
            r"entries\[0\].temporary_bytes must be an integer >= 0, found 0.5",
        ),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"format": "baechi-costs", "version": 1, "entries": []} | change))
    with pytest.raises(PassError, match=message) as caught:
        CostTable.load(path)
    assert str(path) in str(caught.value)


def test_a_truncated_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(CostTable({("a", "cpu"): Entry(1.0)}).to_json()[:-5])
    with pytest.raises(PassError, match="is not JSON"):
        CostTable.load(path)


def test_a_topology_can_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    path.write_text(_TWO_KINDS.to_json())
    module = _module(_layer, _f(8, 8), _f(8, 8))
    del module.attributes["baechi.topology"]
    with pytest.raises(PassError, match=r"has no 'baechi\.topology'"):
        AnnotateCosts().run(module)
    AnnotateCosts(topology=str(path)).run(module)
    assert module.attributes["baechi.topology"] == _TWO_KINDS
