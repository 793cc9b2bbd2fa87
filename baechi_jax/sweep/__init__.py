"""What if: one function planned for many machines, predicted step and peak for each."""

from __future__ import annotations

from baechi_jax.sweep.axes import AXES as AXES
from baechi_jax.sweep.axes import Axis as Axis
from baechi_jax.sweep.axes import Point as Point
from baechi_jax.sweep.axes import SweepError as SweepError
from baechi_jax.sweep.axes import parse_axis as parse_axis
from baechi_jax.sweep.run import Outcome as Outcome
from baechi_jax.sweep.run import figures as figures
from baechi_jax.sweep.run import sweep as sweep
