"""Linear programs in arrays, solved by python-mip's solvers.

With HiGHS the arrays are handed over whole, through the library and the model that python-mip
holds: thousands of rows in a millisecond, where adding them one by one takes longer than solving.
With CBC they are added row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from baechi_jax.passes.placement.interruptible import optimize
from baechi_jax.passes.placement.solver import add_row, highs_available, new_model

if TYPE_CHECKING:
    import mip
    from numpy.typing import NDArray

#: HiGHS's number for matrices by row, and for minimising.
_BY_ROW, _MINIMISE = 2, 1
#: Devex pricing and no scaling: twice as fast on these programs, whose coefficients are near one.
_INTEGERS = ((b"simplex_dual_edge_weight_strategy", 1), (b"simplex_scale_strategy", 0))
#: Ten times the usual tolerances and a lower pivot threshold: fewer iterations, and the same value
#: to seven digits and more.
_DOUBLES = (
    (b"primal_feasibility_tolerance", 1e-6),
    (b"dual_feasibility_tolerance", 1e-6),
    (b"factor_pivot_threshold", 0.01),
)


@dataclass(frozen=True, slots=True)
class LinearProgram:
    """Minimise ``cost x`` with ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    ``A`` by rows: entries ``starts[i]`` to ``starts[i + 1]`` of ``columns`` and ``values``. HiGHS
    starts at the basis of ``basic_columns`` and ``basic_rows``, as many as there are rows; the
    other columns are at their lower bounds, and so are the other rows. It does not presolve then.
    """

    cost: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    starts: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    basic_columns: NDArray[np.bool_]
    basic_rows: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Solved:
    """``status`` as python-mip names it; value and ``x`` where it is ``OPTIMAL``."""

    status: str
    value: float
    x: NDArray[np.float64]


def solve(
    program: LinearProgram, name: str, *, seed: int, solver: str, time_limit: float
) -> Solved:
    """Solve within ``time_limit`` seconds; ``solver`` as in ``solver.new_model``."""
    if solver == "auto":
        solver = "highs" if highs_available() else "cbc"
    model = new_model(name, seed=seed, solver=solver)
    if solver == "highs":
        _hand_over(model, program)
    else:
        _add_rows(model, program)
    status = optimize(model, time_limit)
    if status != "OPTIMAL":
        return Solved(status, 0.0, np.zeros(0))
    if solver == "highs":
        x = np.asarray(model.solver._x, dtype=np.float64)
    else:
        x = np.array([variable.x for variable in model.vars], dtype=np.float64)
    return Solved(status, float(program.cost @ x), x)


def _hand_over(model: mip.Model, program: LinearProgram) -> None:
    from mip import highs

    def doubles(values: NDArray[np.float64]) -> object:
        return highs.ffi.from_buffer("double[]", np.ascontiguousarray(values, dtype=np.float64))

    def integers(values: NDArray[np.int64] | NDArray[np.bool_]) -> object:
        return highs.ffi.from_buffer("HighsInt[]", np.ascontiguousarray(values, dtype=np.int32))

    library, handle = highs.highslib, model.solver._model
    for option, number in _INTEGERS:
        library.Highs_setIntOptionValue(handle, option, number)
    for option, value in _DOUBLES:
        library.Highs_setDoubleOptionValue(handle, option, value)
    status = library.Highs_passLp(
        handle,
        len(program.cost),
        len(program.row_lower),
        len(program.columns),
        _BY_ROW,
        _MINIMISE,
        0.0,
        doubles(program.cost),
        doubles(program.lower),
        doubles(program.upper),
        doubles(program.row_lower),
        doubles(program.row_upper),
        integers(program.starts[:-1]),
        integers(program.columns),
        doubles(program.values),
    )
    # 1 is a warning: small values were dropped.
    assert status in (0, 1), f"HiGHS refused a program: {status}"
    basis = (integers(program.basic_columns), integers(program.basic_rows))
    status = library.Highs_setBasis(handle, *basis)
    assert status == 0, f"HiGHS refused a basis: {status}"
    # As python-mip does after it has read a model from a file.
    model.solver._col_committed = len(program.cost)
    model.solver._row_committed = len(program.row_lower)


def _add_rows(model: mip.Model, program: LinearProgram) -> None:
    bounds = zip(program.lower.tolist(), program.upper.tolist(), program.cost.tolist())
    variables = [model.add_var(lb=low, ub=high, obj=cost) for low, high, cost in bounds]
    starts, columns = program.starts.tolist(), program.columns.tolist()
    values = program.values.tolist()
    ends = zip(program.row_lower.tolist(), program.row_upper.tolist())
    for row, (low, high) in enumerate(ends):
        part = slice(starts[row], starts[row + 1])
        terms = [variables[column] for column in columns[part]]
        if low > -np.inf:
            add_row(model, terms, values[part], ">", low, f"at_least_{row}")
        if high < np.inf:
            add_row(model, terms, values[part], "<", high, f"at_most_{row}")
