"""Readers and writers of partitioning workloads and of splits.

``read_workload`` knows four formats by their content: dnn-partitioning's JSON, Piper's JSON,
PipeDream's ``graph.txt`` and our own JSON. Everything becomes seconds and bytes. A file that is not
what it should be raises WorkloadError, which names the file, the field and the reason.
"""

from baechi_jax.passes.placement.formats.detect import read_workload
from baechi_jax.passes.placement.formats.machine import Machine
from baechi_jax.passes.placement.formats.own import write_workload
from baechi_jax.passes.placement.formats.splits import (
    expert,
    read_split,
    split_content,
    write_split,
)

__all__ = [
    "Machine",
    "expert",
    "read_split",
    "read_workload",
    "split_content",
    "write_split",
    "write_workload",
]
