"""How much less ``spare-sends`` makes a placed step send, and what the step takes then.

The three models of ``benchmarks/models.py``, the transformer also with scanned layers, on four
devices that each hold 0.6 of what one device alone needs; planned with and without the pass.
Nothing is compiled. Ends with one JSON line: of each model the bytes sent and the predicted seconds
of a step, without the pass and with it.
"""

from __future__ import annotations

import json
from typing import Any

import models

from baechi_jax.ir.core import Module
from baechi_jax.ir.topology import Device, Topology
from baechi_jax.ir.trace import trace
from baechi_jax.passes.pass_manager import PassManager
from baechi_jax.passes.pipeline import default_pipeline
from baechi_jax.passes.plan_figures import device_memory, sent_bytes, step_seconds

MODELS = {
    "mlp": lambda: models.mlp(),
    "transformer": lambda: models.transformer(layers=6),
    "scanned_transformer": lambda: models.transformer(layers=8, scanned=True),
    "resnet": lambda: models.resnet(blocks=4),
}


def planned(model: Any, topology: Topology, *, spare: bool = True) -> Module:
    """The plan of ``model`` for ``topology``."""
    module = trace(*model, {}, donate_argnums=0).module
    module.attributes["baechi.topology"] = topology
    passes = [each for each in default_pipeline() if spare or each.name != "spare-sends"]
    PassManager(passes).run(module)
    return module


def main() -> None:
    """Plan all models both ways."""
    figures = {}
    for name, make in MODELS.items():
        model = make()
        alone = planned(model, Topology.uniform(1, Device(memory_bytes=1 << 45)))
        limit = int(0.6 * device_memory(alone)[0].peak_bytes)
        topology = Topology.uniform(4, Device(memory_bytes=limit))
        plans = [planned(model, topology, spare=spare) for spare in (False, True)]
        figures[name] = {
            "sent_bytes": [sent_bytes(plan) for plan in plans],
            "step_seconds": [step_seconds(plan) for plan in plans],
        }
        sent, seconds = figures[name].values()
        print(
            f"{name}: {sent[0] / 1e6:.1f} MB sent, {sent[1] / 1e6:.1f} MB with spare-sends; "
            f"predicted step {seconds[0]:.4f} s, {seconds[1]:.4f} s"
        )
    print(json.dumps({"benchmark": "sends", "models": figures}))


if __name__ == "__main__":
    main()
