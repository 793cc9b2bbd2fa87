"""What docs/axis-analysis.md shows is what happens."""

import re
from pathlib import Path

from baechi_jax.ir.parser import parse_module
from baechi_jax.ir.printer import print_module
from baechi_jax.passes.axis.analysis import FAMILIES
from baechi_jax.passes.axis.rule import RULES
from baechi_jax.passes.cost.primitives import PER_ELEMENT
from baechi_jax.passes.pipeline import parse_pipeline

PAGE = (Path(__file__).parents[3] / "docs" / "axis-analysis.md").read_text(encoding="utf-8")


def test_the_example() -> None:
    (text,) = re.findall(r"```mlir[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    (pipeline,) = re.findall(r"--pass-pipeline='(.*?)'", PAGE)
    module = parse_module(text)
    for each in parse_pipeline(pipeline):
        each.run(module)
    dot, total, root, product, _ = module.main.body.ops
    assert dot.attributes["baechi.axis"] == ("split 0",)
    assert total.attributes["baechi.axis"] == ("partial sum",)
    assert root.attributes["baechi.axis"] == ("neither",)
    assert root.attributes["baechi.axis_reason"] == "of a partial sum is no partial sum"
    assert product.attributes["baechi.axis"] == ("neither",)
    assert print_module(parse_module(print_module(module))) == print_module(module)

    module = parse_module(text)
    for each in parse_pipeline(pipeline.replace("axis=0", "axis=0 combine=true")):
        each.run(module)
    assert module.main.body.ops[2].attributes == {"baechi.axis_combines": (0,)}


def test_every_elementwise_primitive_has_a_rule() -> None:
    """Those of the cost model's table, but for what has no axis to read, or is gone when traced."""
    assert len(FAMILIES) == 6
    without = [name for name in PER_ELEMENT if f"jax.{name}" not in RULES]
    assert sorted(without) == ["custom_lin", "random_gamma_grad", "random_seed", "rng_uniform"]
