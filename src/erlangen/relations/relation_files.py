"""Relations from files: a mask in .npy or .csv, or a list of edges."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from erlangen.errors import DataError
from erlangen.relations.dense_mask import FromMask
from erlangen.relations.relation import Relation
from erlangen.relations.sparse_graph import Graph

SUFFIXES = (".npy", ".csv", ".edges", ".txt")
"""What `read_relation` reads: masks (.npy, .csv) and edge lists (.edges, .txt)."""


MAX_BYTES = 1 << 28
"""Longest text file that is read."""
MAX_ENTRIES = 1 << 28
"""Largest mask that is read: 16,384 queries and keys."""
MAX_POSITIONS = 2_000_000
"""Most positions of an edge list: a relation costs memory for each, whether it has edges or not."""


def is_relation_file(text: str) -> bool:
    """Whether a text names a file of a relation rather than an expression.

    >>> is_relation_file("mask.npy"), is_relation_file("Causal()")
    (True, False)
    """
    return "(" not in text and Path(text).suffix.lower() in SUFFIXES


def read_relation(path: str | Path, nodes: int | None = None) -> Relation:
    """The relation in a file, by its ending.

    - `.npy`: a 2-D mask of booleans or 0/1 integers, True = query (row) reads key (column). Never unpickled.
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
        with path.open("rb") as file:
            # The header is read first: it may claim any shape, whatever follows it.
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = header(file)
            count = prod(shape)
            left = path.stat().st_size - file.tell()
            if dtype.hasobject:
                raise DataError(f"{path}: not a NumPy array file of numbers: it holds objects")
            if len(shape) != 2 or min(shape) < 0:
                raise DataError(f"{path}: a mask has shape (queries, keys), got {shape}")
            if dtype.kind not in "biu":
                raise DataError(
                    f"{path}: a mask holds booleans or 0 and 1 in integers, 1 = may be read, got {dtype}; "
                    "of an additive mask save mask == 0, of one of 1.0 and 0.0 save mask != 0"
                )
            if count > MAX_ENTRIES:
                raise DataError(f"{path}: masks of at most {MAX_ENTRIES:,} entries are read, got {shape}")
            if count * dtype.itemsize != left:
                raise DataError(
                    f"{path}: a mask of shape {shape} needs {count * dtype.itemsize:,} bytes after its "
                    f"header, but {left:,} follow"
                )
            file.seek(0)
            array = npy.read_array(file, allow_pickle=False)
    except DataError:
        raise
    except Exception as error:  # a header is text that NumPy evaluates: it may fail in any way
        raise DataError(f"{path}: not a NumPy array file ({str(error)[:200]})") from None
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise DataError(f"{path}: a mask holds booleans or 0 and 1, got {array.dtype} with other values")
    return array != 0


_ENTRIES = {"0": False, "1": True, "false": False, "true": True}


def _table(path: Path) -> np.ndarray:
    rows: list[list[bool]] = []
    for number, line in enumerate(_lines_of_entries(path), start=1):
        if not line:
            continue
        row = []
        for column, entry in enumerate(line, start=1):
            value = _ENTRIES.get(entry.strip().lower())
            if value is None:
                raise DataError(
                    f"{path}, line {number}, entry {column}: expected 0 or 1, got {entry.strip()[:80]!r}"
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


def _lines_of_entries(path: Path) -> Iterator[list[str]]:
    try:
        yield from csv.reader(_text(path).splitlines())
    except csv.Error as error:
        raise DataError(f"{path}: not a table of entries separated by commas ({error})") from None


def _edges(path: Path) -> list[tuple[int, int]]:
    edges: list[tuple[int, int]] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
            raise DataError(
                f"{path}, line {number}: expected `query key`, two integers >= 0, got {line.strip()[:80]!r}"
            )
        # Digits are counted first: Python refuses to read thousands of them.
        digits = [word.lstrip("0") or "0" for word in words]
        query, key = (int(word) if len(word) <= 20 else MAX_POSITIONS for word in digits)
        if max(query, key) >= MAX_POSITIONS:
            raise DataError(
                f"{path}, line {number}: position {max(digits, key=len)[:40]} is beyond the "
                f"{MAX_POSITIONS:,} positions that are read from a file; make a larger graph in Python"
            )
        edges.append((query, key))
    return edges


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(
                f"{path}: {path.stat().st_size:,} bytes, more than the {MAX_BYTES:,} that are read"
            )
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path}: not a text file (expected UTF-8)") from None
