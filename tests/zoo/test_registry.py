"""The registry of the zoo, and that its comparison finds what is wrong. Needs no package."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import baechi_jax as baechi
from baechi_jax.ir.topology import Device, Topology
from tests import scanned_layers
from tests.zoo.examine import KeptTree, Outcome, compare, keep, kept_together, shake
from tests.zoo.registry import ENTRIES, ZOO, available
from tests.zoo.table import BEGIN, END, HEADINGS, PAGE, main, write


def test_names_are_unique_and_builders_exist() -> None:
    assert len(ZOO) == len(ENTRIES)
    for entry in ENTRIES:
        module, _, function = entry.builder.partition(":")
        spec = importlib.util.find_spec(f"tests.zoo.models.{module}")
        assert spec is not None
        assert spec.origin is not None
        with open(spec.origin, encoding="utf-8") as file:
            assert f"def {function}(" in file.read()


def test_import_is_light() -> None:
    script = (
        "import sys, tests.zoo.registry as r; r.available();"
        "print([m for m in ('jax', 'haiku', 'flax', 'equinox', 'pytest') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_available_leaves_out_what_is_not_installed() -> None:
    assert all(not entry.missing() for entry in available())


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no such entry: resnet; there are haiku-resnet50"):
        available(("resnet",))


def _kept(**arrays: Any) -> KeptTree:
    return keep({name: jnp.asarray(array) for name, array in arrays.items()})


def test_equal_within_the_tolerance() -> None:
    one, other = _kept(x=[1.0, 2.0]), _kept(x=[1.0, 2.0002])
    assert not compare(one, other, one, 2e-4).problems
    assert compare(one, other, one, 2e-4).difference == pytest.approx(1e-4, rel=1e-2)


def test_a_wrong_value_is_found() -> None:
    one, other = _kept(x=[1.0, 2.0]), _kept(x=[1.0, 2.1])
    (problem,) = compare(one, other, one, 2e-4).problems
    assert "['x'] float32[2] differs by 0.05" in problem


def test_rounding_alone_is_no_difference() -> None:
    one, other, near = _kept(x=[1e-9, 2e-9]), _kept(x=[2e-9, -1e-9]), _kept(x=[-1e-9, 1e-9])
    compared = compare(one, other, near, 2e-4)
    assert not compared.problems
    assert compared.noisy == 1


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (np.array([1.0, np.nan], np.float32), "differs"),
        (np.array([1.0, np.inf], np.float32), "differs"),
        (np.array([1, 2], np.int32), "is int32[2], not float32[2]"),
        (np.array([[1.0, 2.0]], np.float32), "is float32[1, 2], not float32[2]"),
    ],
)
def test_what_is_no_number_or_of_another_type_is_found(other: Any, expected: str) -> None:
    one = _kept(x=[1.0, 2.0])
    (problem,) = compare(one, _kept(x=other), one, 2e-4).problems
    assert expected in problem


def test_weak_types_and_structures_are_compared() -> None:
    strong, weak = keep({"x": jnp.ones(())}), keep({"x": jnp.asarray(1.0)})
    assert compare(strong, weak, strong, 1.0).problems == (
        "['x'] is float32[] weak, not float32[]",
    )
    assert "structure" in compare(strong, _kept(y=np.float32(1)), strong, 1.0).problems[0]


def test_shake_changes_floats_alone_and_little() -> None:
    arguments = (jnp.linspace(1, 2, 100), jnp.arange(3), jax.random.key(0))
    near = shake(arguments)
    np.testing.assert_allclose(near[0], arguments[0], rtol=2e-7)
    assert (near[0] != arguments[0]).any()
    np.testing.assert_array_equal(near[1], arguments[1])


def test_the_table_keeps_what_is_not_run_again(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n", encoding="utf-8")
    first, second = ENTRIES[0].name, ENTRIES[1].name
    cells = [f"c{index}" for index in range(len(HEADINGS) - 1)]
    write({second: [second, *cells]}, page)
    write({first: [first, *cells[::-1]]}, page)
    lines = page.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    rows = [line for line in lines if line.startswith(f"| {first}") or second in line]
    assert rows == [
        f"| {first} | {ENTRIES[0].shows} | " + " | ".join(cells[::-1]) + " |",
        f"| {second} | {ENTRIES[1].shows} | " + " | ".join(cells) + " |",
    ]
    assert all(line.count("|") == len(HEADINGS) + 2 for line in lines if line.startswith("|"))


def test_a_scan_that_is_left_is_found() -> None:
    layers, width = 2, 256
    params = scanned_layers.init(jax.random.key(0), layers, width)
    x = jnp.ones((2, width))

    def step(params: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(scanned_layers.loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    def found(topology: Topology, **options: Any) -> list[str]:
        placed = baechi.place(step, topology=topology, donate_argnums=0, **options)
        shardings = placed.input_shardings(params, x)[0]
        return kept_together(placed.plan(params, x).module, params, shardings, layers)

    assert found(Topology.uniform(2, Device(memory_bytes=800_000)), placer="m-topo") == []
    one = Topology.uniform(1)
    apart = found(one, pipeline="default{placer=m-topo when=always}")
    assert apart == ["['w'] lies whole on one device"]
    problems = found(one, pipeline="default{placer=m-topo when=never}")
    assert any("a scan over all layers at " in problem for problem in problems)
    assert any("a stack of all layers, tensor<2x256x256xf32>" in problem for problem in problems)


def test_the_reason_is_the_summarys() -> None:
    said = "Step 1 ms. 98% of the work is in one while loop at a.py:7: it\n cannot be divided, so"
    outcome = Outcome(
        entry=ZOO["jax-while-loop"],
        equations=1,
        tasks=1,
        plan_seconds=1.0,
        one_device_bytes=1,
        limit_bytes=1,
        predicted_bytes=(1,),
        actual_bytes=(1,),
        predicted_step_seconds=1.0,
        step_seconds=1.0,
        one_device_step_seconds=1.0,
        difference=0.0,
        noisy=0,
        wrong=(),
        summary=said,
        devices_used=1,
    )
    assert outcome.reason == "98% of the work is in one while loop at a.py:7"
    assert outcome.problems == ()
    silent = replace(outcome, summary="Step 1 ms.")
    assert silent.problems == ("the summary does not say why one device does it all",)


def test_the_page_has_a_row_for_each_entry() -> None:
    """Of a whole run, all equal; why one device does it all in the words of the summary."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition(BEGIN)
    table, end, _ = rest.partition(END)
    assert end
    heading, _, *lines = table.strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert heading.count("|") == len(HEADINGS) + 2
    assert [row[:2] for row in rows] == [[entry.name, entry.shows] for entry in ENTRIES]
    several = re.compile(r"equal(, \d+ arrays to within rounding)?; [2-4] devices")
    one = re.compile(r"equal; one device: \d+% of the work is in one [a-z ]+ at \w+\.py:\d+")
    for entry, row in zip(ENTRIES, rows):
        assert (one if entry.one_device else several).fullmatch(row[-1]), row


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["haiku-resnet5"])
    assert "no such entry: haiku-resnet5; there are haiku-resnet50" in capsys.readouterr().err
