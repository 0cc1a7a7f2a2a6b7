"""The citation networks Cora, Citeseer and PubMed from Planetoid's raw files, without trusting them.

A data set is eight files `ind.<name>.<part>`. Seven are pickles, which may run any code when loaded: they are
read by `plain_pickle`, which knows arrays, sparse matrices, dictionaries and lists, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.errors import DataError, ParameterError
from erlangen.relations import Graph
from erlangen.training import plain_pickle

NAMES = ("Cora", "Citeseer", "PubMed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION = 500
MAX_INDEX = 1 << 24
"""Longest list of test documents, in bytes."""
SOURCE = "https://github.com/kimiyoung/planetoid/tree/master/data"


@dataclass(frozen=True)
class Citations:
    """A citation network: documents, the words in them, who cites whom, and the standard split.

    `x` (n, words) has rows that sum to 1, or to 0 where a document has no known words; `graph` is symmetric,
    without self loops; `train`, `validation` and `test` are the numbers of the documents with these roles.
    """

    name: str
    x: Tensor
    y: Tensor
    graph: Graph
    train: Tensor
    validation: Tensor
    test: Tensor

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1


def load(name: str, folder: str | Path) -> Citations:
    """Read a data set from `folder`, where its files lie directly, in `raw` or in `<name>/raw`.

    Where none of these has them, PyG downloads them to `folder/<name>/raw`.
    """
    name = _name(name)
    raw = find(name, folder) or _download(name, Path(folder) / name / "raw")
    return read(name, raw)


def find(name: str, folder: str | Path) -> Path | None:
    """The folder, at or below the given one, that holds the eight files of a data set; None if there is none.

    Some of the eight without the others are an error: a copy that was cut short.

    >>> find("Cora", "/nowhere") is None
    True
    """
    folder = Path(folder)
    for place in (folder, folder / "raw", folder / name / "raw", folder / name.lower() / "raw"):
        missing = [path.name for part in PARTS if not (path := _path(place, name, part)).is_file()]
        if not missing:
            return place
        if len(missing) < len(PARTS):
            raise DataError(
                f"{place} has some of the files of {name}, but not {', '.join(missing)}; "
                f"all eight are at {SOURCE}"
            )
    return None


def read(name: str, folder: str | Path) -> Citations:
    """The data set in the eight files in `folder`, with the split of the Planetoid paper.

    The first documents are for training (20 per class), the next 500 for validation; the test documents are
    listed. Citeseer lists fewer than it has: the missing ones have no words and no citations.
    """
    name = _name(name)
    x, tx, allx = (_matrix(folder, name, part) for part in ("x", "tx", "allx"))
    y, ty, ally = (_matrix(folder, name, part) for part in ("y", "ty", "ally"))
    for part, labels in (("y", y), ("ty", ty), ("ally", ally)):
        single = bool(((labels == 0) | (labels == 1)).all() and (np.count_nonzero(labels, axis=1) <= 1).all())
        _need(_path(folder, name, part), "every document has at most one label, a 1 among zeros", single)
    test = _test_index(folder, name)
    listed = _graph(folder, name)

    _need(folder, "x and allx have as many columns as tx", x.shape[1] == tx.shape[1] == allx.shape[1])
    _need(folder, "y and ally have as many columns as ty", y.shape[1] == ty.shape[1] == ally.shape[1])
    rows = len(x) == len(y) and len(tx) == len(ty) == len(test) and len(allx) == len(ally)
    _need(folder, "x, tx and allx have as many rows as y, ty with test.index, and ally", rows)
    _need(folder, "test.index follows the documents of allx", bool(len(test)) and test.min() == len(allx))
    _need(folder, "there are 500 documents for validation", len(x) + VALIDATION <= len(allx))

    n = int(test.max()) + 1
    small = n * max(x.shape[1], y.shape[1]) <= plain_pickle.MAX_ENTRIES
    _need(folder, "the numbers of the documents are small", small)
    words, labels = np.zeros((n, x.shape[1]), np.float32), np.zeros((n, y.shape[1]))
    words[: len(allx)], labels[: len(allx)] = allx, ally
    words[test], labels[test] = tx, ty
    total = words.sum(1, keepdims=True)
    words /= np.where(total > 0, total, 1)
    return Citations(
        name,
        torch.from_numpy(words),
        torch.from_numpy(labels.argmax(1)),
        _symmetric(listed, n, folder),
        torch.arange(len(x)),
        torch.arange(len(x), len(x) + VALIDATION),
        torch.from_numpy(np.sort(test)),
    )


def _name(name: str) -> str:
    known = {known.lower(): known for known in NAMES}
    if str(name).lower() not in known:
        raise ParameterError(f"the data set must be one of {', '.join(NAMES)}, got {name!r}")
    return known[str(name).lower()]


def _path(folder: str | Path, name: str, part: str) -> Path:
    return Path(folder) / f"ind.{name.lower()}.{part}"


def _need(where: str | Path, what: str, holds: bool) -> None:
    if not holds:
        raise DataError(f"{where} is not what Planetoid published: expected that {what}; see {SOURCE}")


def _unpickle(path: Path) -> Any:
    """What a pickle of arrays, sparse matrices, dictionaries and lists holds."""
    try:
        if path.stat().st_size > plain_pickle.MAX_BYTES:
            raise DataError(f"{path} is larger than the {plain_pickle.MAX_BYTES:,} bytes that are read")
        pickled = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; all eight files are at {SOURCE}") from None
    try:
        return plain_pickle.read(pickled)
    except DataError as error:
        raise DataError(
            f"{path} is no pickle of arrays, sparse matrices, dictionaries and lists ({error}); "
            f"the file is at {SOURCE}"
        ) from None


def _matrix(folder: str | Path, name: str, part: str) -> np.ndarray:
    path = _path(folder, name, part)
    value = _unpickle(path)
    try:
        matrix = value.dense() if isinstance(value, plain_pickle.Sparse) else value
    except DataError as error:
        raise DataError(f"{path} is no matrix of numbers: {error}; the file is at {SOURCE}") from None
    numbers = isinstance(matrix, np.ndarray) and matrix.ndim == 2 and matrix.size > 0
    _need(path, "it is a matrix of numbers", numbers and np.issubdtype(matrix.dtype, np.number))
    modest = bool(matrix.min() >= 0 and matrix.max() < 1e30)  # false of NaN, too; rows are added in float32
    _need(path, "its numbers are finite and not negative", modest)
    return matrix


def _test_index(folder: str | Path, name: str) -> np.ndarray:
    path = _path(folder, name, "test.index")
    try:
        _need(path, f"it has at most {MAX_INDEX:,} bytes", path.stat().st_size <= MAX_INDEX)
        index = np.array([int(line) for line in path.read_text().split()], np.int64)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; all eight files are at {SOURCE}") from None
    except DataError:
        raise
    except (ValueError, OverflowError):
        raise DataError(
            f"{path}: expected one whole number a line, the test documents; see {SOURCE}"
        ) from None
    _need(path, "no test document is listed twice", np.unique(index).size == index.size)
    return index


def _graph(folder: str | Path, name: str) -> dict[int, list[int]]:
    path = _path(folder, name, "graph")
    graph = _unpickle(path)
    _need(
        path,
        "it maps the number of a document to a list of numbers",
        isinstance(graph, dict)
        and all(isinstance(value, list) for value in graph.values())
        # One list may be named many times: what a short file lists can be long.
        and sum(map(len, graph.values())) <= plain_pickle.MAX_STEPS
        and all(
            isinstance(key, int) and isinstance(value, list) and all(isinstance(j, int) for j in value)
            for key, value in graph.items()
        ),
    )
    return graph


def _symmetric(listed: dict[int, list[int]], n: int, folder: str | Path) -> Graph:
    """Each citation both ways and once; a document that cites itself does not."""
    pairs = np.array([(i, j) for i, near in listed.items() for j in near if i != j], np.int64).reshape(-1, 2)
    _need(
        folder, f"the graph has {n} documents", not pairs.size or bool(pairs.min() >= 0 and pairs.max() < n)
    )
    return Graph.from_pairs(np.concatenate([pairs, pairs[:, ::-1]]), nodes=n)


def _download(name: str, folder: Path) -> Path:
    try:
        from torch_geometric.data import download_url
        from torch_geometric.datasets import Planetoid
    except ImportError:
        raise DataError(
            f"{folder.parent.parent} has no files ind.{name.lower()}.*, and torch-geometric, which downloads "
            f"them, is not installed: install erlangen[pyg], or copy the eight files from {SOURCE}"
        ) from None
    try:
        for part in PARTS:
            download_url(f"{Planetoid.url}/ind.{name.lower()}.{part}", str(folder), log=False)
    except OSError as error:
        raise DataError(
            f"{folder.parent.parent} has no files ind.{name.lower()}.*, and downloading failed ({error}); "
            f"copy the eight files from {SOURCE} there"
        ) from None
    return folder
