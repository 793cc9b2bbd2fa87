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
    if solver == "cbc":
        # As for HiGHS in ``_load_quietly``.
        from mip import cbc

        _ = cbc.cbclib.Cbc_deleteModel
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
        from mip import highs
    finally:
        noisy.setLevel(level)
    # Models are freed by the garbage collector, which may run anywhere, also while cffi holds its
    # lock; the first use of a library's function takes that lock too. Looked up beforehand, the
    # function that frees models needs it no more, and nothing can hang.
    if highs.has_highs:
        _ = highs.highslib.Highs_destroy


def add_row(
    model: mip.Model,
    variables: Sequence[mip.Var],
    coefficients: Sequence[float],
    sense: Literal["<", "=", ">"],
    right: float,
    name: str,
) -> None:
    """Add ``sum of coefficients * variables (<=, =, >=) right``.

    Several times faster than building the expression with operators. A variable may come twice.
    """
    import mip

    terms: dict[mip.Var, float] = {}
    for variable, coefficient in zip(variables, coefficients):
        terms[variable] = terms.get(variable, 0.0) + coefficient
    # LinExpr keeps the last of several coefficients for one variable.
    row = mip.LinExpr(list(terms), list(terms.values()), -right, sense=sense)
    model.add_constr(row, name=name)
