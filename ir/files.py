"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write ``text`` (UTF-8) to a temporary name beside ``path``, then rename it into place.

    Missing folders are made. Whatever was at ``path`` stays as it was until the new text is whole,
    also when the process is interrupted; the temporary file is removed on any error. Raises
    OSError when the folder cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(temporary, "x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
