"""The passes, and what runs them. Each pass is one file, imported when a pipeline names it."""

from baechi_jax.passes.pass_manager import PassManager, PassTiming
from baechi_jax.passes.pipeline import default_pipeline, parse_pipeline, print_pipeline
from baechi_jax.passes.registry import Pass, all_passes, find_pass, register_pass

__all__ = [
    "Pass",
    "PassManager",
    "PassTiming",
    "all_passes",
    "default_pipeline",
    "find_pass",
    "parse_pipeline",
    "print_pipeline",
    "register_pass",
]
