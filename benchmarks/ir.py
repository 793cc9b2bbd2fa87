"""The IR's speed: 10,000 operations built, printed, parsed, verified and fingerprinted.

The operations are those of a transformer's traced training step: matrix products, reductions,
elementwise arithmetic, literals, loops with a region, with their parameters and source locations,
in tasks that carry costs. Beside it the same step with a cost on every operation, as it is after
``annotate-costs``. Times are CPU seconds of this process, the median of several runs, each from a
collected heap. Building pauses the collector, as tracing does.

Run: ``python benchmarks/ir.py``. The last line is JSON.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from baechi_jax.ir import (
    Attribute,
    Cost,
    DictAttr,
    FloatAttr,
    Location,
    Module,
    OpaqueAttr,
    Operation,
    Region,
    ScalarType,
    TensorType,
    Topology,
    parse_module,
    print_module,
    verify,
)
from baechi_jax.ir.builder import Builder
from baechi_jax.ir.core import Block, Value
from baechi_jax.ir.fingerprint import fingerprint
from baechi_jax.ir.function import function, refresh_function_type
from baechi_jax.ir.pause_collection import paused_collection

OPS = 10_000
RUNS = 7

_T = TypeVar("_T")

F32 = ScalarType("f32")
NONE = OpaqueAttr("baechi", "none")
SCALAR = TensorType((), "f32")
ACTIVATION = TensorType((8, 128, 256), "f32")
REDUCED = TensorType((8, 128, 1), "f32")
WEIGHT = TensorType((256, 256), "f32")


class StepBuilder:
    """Builds the operations of a made-up step, each different from the one before."""

    def __init__(self, block: Block, *, costs: bool) -> None:
        self.builder = Builder(block)
        self.costs = costs
        self.count = 0
        self.scope = ""

    def op(
        self, name: str, operands: tuple[Value, ...], type_: TensorType, **more: Attribute
    ) -> Value:
        """One operation with an index into the trace and a location."""
        count = self.count = self.count + 1
        more["baechi.eqn"] = count
        if self.costs:
            more["baechi.cost"] = cost(count, type_)
        location = Location("train.py", count % 500 + 1, count % 60, self.scope)
        return self.builder.create(name, operands, (type_,), more, (), location).result

    def layer(self, number: int, x: Value, weight: Value) -> Value:
        """Twenty operations or so: normalise, multiply, activate, loop, convert."""
        self.scope = f"transpose(jvp(layer{number}))"
        mean = self.op("jax.reduce_sum", (x,), REDUCED, axes=(2,), out_sharding=NONE)
        size = self.builder.literal(FloatAttr(256.0 + number, F32), SCALAR)
        mean = self.op("jax.div", (mean, size), REDUCED)
        x = self.op("jax.sub", (x, mean), ACTIVATION)
        square = self.op("jax.integer_pow", (x,), ACTIVATION, y=2)
        scale = self.op("jax.rsqrt", (square,), ACTIVATION, accuracy=NONE)
        for _ in range(4):
            scale = self.op("jax.mul", (x, scale), ACTIVATION)
        y = self.op(
            "jax.dot_general",
            (scale, weight),
            ACTIVATION,
            dimension_numbers=DictAttr.of({"lhs": (2,), "rhs": (0,), "batch": ((), ())}),
            precision=NONE,
            preferred_element_type=F32,
        )
        shape = ACTIVATION.shape
        z = self.op("jax.broadcast_in_dim", (mean,), ACTIVATION, shape=shape, dims=(0, 1, 2))
        for name in ("jax.add", "jax.mul", "jax.sub", "jax.max", "jax.select_n", "jax.add_any"):
            y = self.op(name, (y, z), ACTIVATION)
        y = self.loop(y)
        return self.op("jax.convert_element_type", (y,), ACTIVATION, new_dtype=F32, weak_type=False)

    def loop(self, x: Value) -> Value:
        """An operation with a region."""
        body = Block((ACTIVATION,))
        inner = Builder(body)
        value = inner.value("jax.tanh", body.arguments, ACTIVATION, {"accuracy": NONE})
        inner.create("baechi.yield", (value,))
        self.count += 3
        attributes: dict[str, Attribute] = {
            "baechi.regions": ("body_jaxpr",),
            "length": 4,
            "baechi.eqn": self.count,
        }
        return self.builder.create(
            "jax.scan", (x,), (ACTIVATION,), attributes, (Region([body]),)
        ).result


def cost(count: int, type_: TensorType) -> Cost:
    """A cost that is not like the others."""
    return Cost(
        flops=3.0 * count,
        read_bytes=4096.0 * count,
        written_bytes=1024.0 * count,
        seconds=(1e-6 * count,),
        output_bytes=type_.nbytes,
    )


def build(*, costs: bool = False) -> Module:
    """A module of ``OPS`` operations and a few more, nearly all in tasks of a hundred."""
    with paused_collection():
        module = Module({"baechi.topology": Topology.uniform(4), "baechi.pipeline": "fuse-tasks"})
        func = function("main", (ACTIVATION, WEIGHT))
        module.body.append(func)
        x: Value = func.body.arguments[0]
        weight = func.body.arguments[1]
        made = number = 0
        while made < OPS:
            body = Block((ACTIVATION, WEIGHT))
            step = StepBuilder(body, costs=costs)
            value: Value = body.arguments[0]
            while step.count < 90:
                value = step.layer(number, value, body.arguments[1])
            step.builder.create("baechi.yield", (value,))
            attributes: dict[str, Attribute] = {
                "sym_name": f"t{number}",
                "baechi.cost": cost(number, ACTIVATION),
                "baechi.devices": (number % 4,),
            }
            task = Builder(func.body).create(
                "baechi.task", (x, weight), (ACTIVATION,), attributes, (Region([body]),)
            )
            made += sum(1 for _ in task.walk())
            x = task.result
            number += 1
        func.body.append(Operation("func.return", (x,)))
        refresh_function_type(func)
    return module


def median_cpu_seconds(work: Callable[[], _T]) -> tuple[float, _T]:
    """The median over ``RUNS`` runs of ``work``, and what it gave."""
    seconds: list[float] = []
    for _ in range(RUNS):
        gc.collect()
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds), result


def measure(*, costs: bool) -> dict[str, float]:
    """Seconds of each part, for the step with or without a cost on every operation."""
    build_seconds, module = median_cpu_seconds(lambda: build(costs=costs))
    both_seconds, text = median_cpu_seconds(lambda: print_module(build(costs=costs)))
    parse_seconds, parsed = median_cpu_seconds(lambda: parse_module(text))
    verify_seconds, _ = median_cpu_seconds(lambda: verify(module))
    fingerprint_seconds, _ = median_cpu_seconds(lambda: fingerprint(module))
    if print_module(parsed) != text:
        raise SystemExit("what was parsed prints differently")
    return {
        "operations": sum(1 for _ in module.walk()),
        "megabytes": len(text) / 1e6,
        "build": build_seconds,
        "build_print": both_seconds,
        "parse": parse_seconds,
        "verify": verify_seconds,
        "fingerprint": fingerprint_seconds,
    }


def main() -> None:
    """Measure, print a table, and one line of JSON."""
    traced, annotated = measure(costs=False), measure(costs=True)
    print(f"{'CPU seconds':<14} {'traced':>10} {'annotated':>10}")
    for key in traced:
        print(f"{key.replace('_', ' + '):<14} {traced[key]:10.3f} {annotated[key]:10.3f}")
    figures: dict[str, object] = {"benchmark": "ir", "operations": traced["operations"]}
    for prefix, measured in (("", traced), ("annotated_", annotated)):
        for key in ("build_print", "parse", "verify", "fingerprint"):
            figures[f"{prefix}{key}_cpu_seconds"] = round(measured[key], 4)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
