"""Models of python-mip for the placers: HiGHS where it is there, CBC otherwise.

python-mip is imported when the first model is made (about 0.1 s). Solvers run on one thread with a
fixed seed, so that a model without a time limit always gives the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import mip

logger = logging.getLogger(__name__)


def new_model(name: str, *, seed: int = 0, solver: str = "auto") -> mip.Model:
    """An empty minimising model.

    ``solver``: ``highs``, ``cbc``, or ``auto`` for HiGHS if it can be loaded, else CBC.
    """
    _load_quietly()
    import mip

    if solver == "auto":
        solver = "highs" if highs_available() else "cbc"
    model = mip.Model(name=name, sense=mip.MINIMIZE, solver_name=solver.upper())
    model.verbose = 0
    model.seed = seed
    model.threads = 1
    return model


def highs_available() -> bool:
    """Whether python-mip can load HiGHS; the choice of CBC instead is logged."""
    _load_quietly()
    from mip import highs

    if not highs.has_highs:
        logger.info("HiGHS cannot be loaded; linear programs are solved by CBC")
    return bool(highs.has_highs)


def _load_quietly() -> None:
    # While it looks for HiGHS, python-mip warns of the library that it tries first and that newer
    # releases of highspy no longer export; it then finds the one in highsbox.
    noisy = logging.getLogger("mip.highs")
    level = noisy.level
    noisy.setLevel(logging.CRITICAL)
    try:
        import mip.highs  # noqa: F401
    finally:
        noisy.setLevel(level)


def add_row(
    model: mip.Model,
    variables: Sequence[mip.Var],
    coefficients: Sequence[float],
    sense: Literal["<", "=", ">"],
    right: float,
    name: str,
) -> None:
    """Add ``sum of coefficients * variables (<=, =, >=) right``.

    Several times faster than building the expression with operators.
    """
    import mip

    model.add_constr(
        mip.LinExpr(list(variables), list(coefficients), -right, sense=sense), name=name
    )
