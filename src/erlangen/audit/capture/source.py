"""Where in the code a call was made: the innermost line outside torch and outside erlangen."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

_PASSED_OVER = {"torch", "erlangen"} | set(sys.stdlib_module_names)
_OURS = str(Path(__file__).resolve().parents[2])
"""Code of this package also runs with the globals of others: it stands in for functions that are watched."""


def source_line() -> str | None:
    """`file:line` of the code that is running, seen from inside torch or erlangen; None if there is no file.

    Below the working directory the path is relative to it; elsewhere, and for installed packages, the file
    and the folder that it is in say enough.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        file = frame.f_code.co_filename
        named = isinstance(module, str) and module.partition(".")[0] not in _PASSED_OVER
        if named and file[:1] != "<" and not file.startswith(_OURS):
            return f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _short(file: str) -> str:
    path = Path(file)
    installed = "site-packages" in path.parts or "dist-packages" in path.parts
    try:
        if not installed:
            return path.relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        pass  # elsewhere, or the working directory is gone
    return "/".join(path.parts[-2:])
