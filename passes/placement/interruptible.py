"""Solving models so that Ctrl-C is heard at once.

A solver in C keeps the main thread from handling signals. It runs in a thread of its own here, and
the main thread waits. On Ctrl-C the solver is told to stop and the thread ends with it. HiGHS looks
for that after each iteration of the simplex method and at each node of a search. CBC cannot be told
(it takes HiGHS's place only where that cannot be loaded): its thread goes on to the time limit, or
until the process ends, which does not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mip

#: How long a solver that was told to stop is waited for.
GRACE_SECONDS = 3.0

#: The status of a solve that Ctrl-C ended.
INTERRUPTED = "INTERRUPTED"


def status_name(status: str) -> str:
    """What ``optimize`` returns, by the names of results of placers."""
    if status in ("INFEASIBLE", "INT_INFEASIBLE"):
        return "infeasible"
    return {"OPTIMAL": "optimal", INTERRUPTED: "interrupted"}.get(status, "time limit")


def optimize(
    model: mip.Model,
    max_seconds: float,
    *,
    relax: bool = False,
    max_nodes: int | None = None,
    keep_best: bool = False,
) -> str:
    """The name of the status of ``model`` after at most ``max_seconds``.

    ``relax``: solve the linear relaxation. ``max_nodes``: search at most so many nodes.

    Ctrl-C raises KeyboardInterrupt, at once or, with HiGHS, as soon as it has stopped; the model
    must not be used after that. With ``keep_best`` the status is ``INTERRUPTED`` instead, and the
    model holds the best solution so far, if there is one, and its bound; a solver that does not
    stop (CBC, or HiGHS after ``GRACE_SECONDS``) still leaves nothing but KeyboardInterrupt.
    """
    limits: dict[str, Any] = {}
    if max_seconds != float("inf"):
        limits["max_seconds"] = max_seconds
    if max_nodes is not None:
        limits["max_nodes"] = max_nodes
    outcome: list[str] = []
    failure: list[BaseException] = []
    can_stop = model.solver_name.upper() == "HIGHS"
    stop, done = threading.Event(), threading.Event()

    def work() -> None:
        try:
            with _stopping(model, stop.is_set) if can_stop else nullcontext():
                outcome.append(_solve(model, stop.is_set, relax, limits))
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    # The signal may reach another thread, so that the main one must wake up to hear of it. And no
    # join() as long as Ctrl-C may come: up to Python 3.12 it takes an interrupted wait for the end
    # of the thread.
    thread = threading.Thread(target=work, name="baechi-solver", daemon=True)
    thread.start()
    try:
        while not done.wait(0.05):
            pass
    except BaseException as error:
        stop.set()
        stopped = done.wait(GRACE_SECONDS) if can_stop else False
        if not (keep_best and stopped and not failure and isinstance(error, KeyboardInterrupt)):
            raise
        outcome.append(INTERRUPTED)
    thread.join()
    if failure:
        raise failure[0]
    return outcome[-1]


def _solve(
    model: mip.Model, stopped: Callable[[], bool], relax: bool, limits: dict[str, Any]
) -> str:
    try:
        return str(model.optimize(relax=relax, **limits).name)
    except KeyError:
        # python-mip 2.0 has no name for the status that HiGHS ends with when it is told to stop,
        # and looks it up before it fetches the solution.
        if not stopped():
            raise
    if not relax:
        _fetch_solution(model)
    return INTERRUPTED


def _fetch_solution(model: mip.Model) -> None:
    """What python-mip does after a solve that ends at its time limit."""
    import mip
    from mip import highs

    solver, status = model.solver, mip.OptimizationStatus
    model._status = status.FEASIBLE if model.num_solutions else status.NO_SOLUTION_FOUND
    if not model.num_solutions:
        return
    columns, rows = solver.num_cols(), solver.num_rows()
    arrays = [highs.ffi.new("double[]", count) for count in (columns, columns, rows, rows)]
    if highs.highslib.Highs_getSolution(solver._model, *arrays) == 0:
        solver._x = list(arrays[0])


@contextmanager
def _stopping(model: mip.Model, stopped: Callable[[], bool]) -> Iterator[None]:
    """Inside, HiGHS ends its run soon after ``stopped()`` is true."""
    from mip import highs

    library, solver = highs.highslib, model.solver._model
    kinds = (
        library.kHighsCallbackSimplexInterrupt,
        library.kHighsCallbackIpmInterrupt,
        library.kHighsCallbackMipInterrupt,
    )

    def look(kind: int, message: Any, found: Any, answer: Any, data: Any) -> None:
        if stopped():
            answer.user_interrupt = 1

    # Alive as long as HiGHS may call it: to the end of this block.
    callback = highs.ffi.callback("HighsCCallbackType", look)
    library.Highs_setCallback(solver, callback, highs.ffi.NULL)
    for kind in kinds:
        library.Highs_startCallback(solver, kind)
    try:
        yield
    finally:
        for kind in kinds:
            library.Highs_stopCallback(solver, kind)
