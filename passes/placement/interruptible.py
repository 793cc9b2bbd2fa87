"""Solving models so that Ctrl-C is heard at once.

A solver in C keeps the main thread from handling signals. It runs in a thread of its own here, and
the main thread waits. After Ctrl-C the thread goes on to its time limit, or until the process ends.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mip


def optimize(model: mip.Model, max_seconds: float, *, relax: bool = False) -> str:
    """The name of the status of ``model`` after at most ``max_seconds``.

    Raises KeyboardInterrupt at once on Ctrl-C; the model must not be used after that.
    """
    outcome: list[str] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            limit = {} if max_seconds == float("inf") else {"max_seconds": max_seconds}
            outcome.append(model.optimize(relax=relax, **limit).name)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=work, name="baechi-solver", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.05)
    if failure:
        raise failure[0]
    return outcome[0]
