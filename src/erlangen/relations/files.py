"""Relations from files: a mask in .npy or .csv, or a list of edges."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from erlangen.errors import DataError
from erlangen.relations import sizes
from erlangen.relations.graphs import FromMask, Graph
from erlangen.relations.relation import Relation

SUFFIXES = (".npy", ".csv", ".edges", ".txt")
"""What `read_relation` reads: masks (.npy, .csv) and edge lists (.edges, .txt)."""


def is_relation_file(text: str) -> bool:
    """Whether a text names a file of a relation rather than an expression.

    >>> is_relation_file("mask.npy"), is_relation_file("Causal()")
    (True, False)
    """
    return "(" not in text and Path(text).suffix.lower() in SUFFIXES


def read_relation(path: str | Path, nodes: int | None = None) -> Relation:
    """The relation in a file, by its ending.

    - `.npy`: a 2-D mask of booleans or 0/1, True = query (row) reads key (column). Never unpickled.
    - `.csv`: the same, one row per line, entries 0/1 or True/False separated by commas.
    - `.edges`, `.txt`: one edge per line, `query key`, integers from 0 separated by blanks or a comma;
      lines that start with # are comments. `nodes` gives the number of positions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mask.csv")
    ...     _ = path.write_text("1,0\\n1,1\\n")
    ...     read_relation(path)
    FromMask([[1, 0], [1, 1]])
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: expected a file ending in {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if suffix in (".edges", ".txt"):
        return Graph(_edges(path), nodes=nodes)
    return FromMask(_array(path) if suffix == ".npy" else _table(path))


def _array(path: Path) -> np.ndarray:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: not a NumPy array file ({error})") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        shape = getattr(array, "shape", "an archive")
        raise DataError(f"{path}: a mask has shape (queries, keys), got {shape}")
    if array.dtype != bool and not (np.issubdtype(array.dtype, np.number) and np.isin(array, (0, 1)).all()):
        raise DataError(f"{path}: a mask holds booleans or 0 and 1, got {array.dtype} with other values")
    return array != 0


_ENTRIES = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}


def _table(path: Path) -> np.ndarray:
    rows: list[list[bool]] = []
    for number, line in enumerate(csv.reader(_text(path).splitlines()), start=1):
        if not line:
            continue
        row = []
        for column, entry in enumerate(line, start=1):
            value = _ENTRIES.get(entry.strip().lower())
            if value is None:
                raise DataError(
                    f"{path}, line {number}, entry {column}: expected 0 or 1, got {entry.strip()!r}"
                )
            row.append(value)
        if rows and len(row) != len(rows[0]):
            raise DataError(
                f"{path}, line {number}: {len(row)} entries, but the first row has {len(rows[0])}"
            )
        rows.append(row)
    if not rows:
        raise DataError(f"{path}: the file holds no rows")
    return np.array(rows, bool)


def _edges(path: Path) -> list[tuple[int, int]]:
    edges: list[tuple[int, int]] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise DataError(
                f"{path}, line {number}: expected `query key`, two integers >= 0, got {line.strip()!r}"
            )
        query, key = map(int, words)
        if max(query, key) >= sizes.MAX_SIZE:
            raise DataError(
                f"{path}, line {number}: position {max(query, key)} is beyond {sizes.MAX_SIZE - 1}"
            )
        edges.append((query, key))
    return edges


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file (expected UTF-8)") from None
