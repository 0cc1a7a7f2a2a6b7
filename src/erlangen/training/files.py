"""Files that are there entirely or not at all, whatever happens while they are written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes `path` once the block has ended well and the disk has the content.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with replacing(path) as draft:
    ...     _ = draft.write_text("first")
    >>> try:
    ...     with replacing(path) as draft:
    ...         _ = draft.write_text("sec")
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     path.read_text(), [file.name for file in path.parent.iterdir()]
    ('first', ['a.txt'])
    """
    # The suffix stays, since writers tell the format by it.
    draft = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        draft.touch()
        rights = draft.stat().st_mode  # the user's usual ones; some writers would make the file private
        yield draft
        draft.chmod(rights)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text so that a reader finds either the old file or the new one.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_text(path, "ä\\n"); path.read_text(encoding="utf-8")
    'ä\\n'
    """
    with replacing(path) as draft:
        draft.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, likewise.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.json"
    >>> write_json(path, {"loss": 1.5}); json.loads(path.read_text())
    {'loss': 1.5}
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
