"""The citation networks Cora, Citeseer and PubMed from Planetoid's raw files, without trusting them.

A data set is eight files `ind.<name>.<part>`. Seven are pickles, which may run any code when loaded: they are
read by an unpickler that knows arrays, sparse matrices, dictionaries and lists, and refuses everything else.
"""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from erlangen.errors import DataError, ParameterError
from erlangen.relations import Graph

NAMES = ("Cora", "Citeseer", "PubMed")
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
VALIDATION = 500
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
    test = _test_index(folder, name)
    listed = _graph(folder, name)

    _need(folder, "x and allx have as many columns as tx", x.shape[1] == tx.shape[1] == allx.shape[1])
    _need(folder, "y and ally have as many columns as ty", y.shape[1] == ty.shape[1] == ally.shape[1])
    rows = len(x) == len(y) and len(tx) == len(ty) == len(test) and len(allx) == len(ally)
    _need(folder, "x, tx and allx have as many rows as y, ty with test.index, and ally", rows)
    _need(folder, "test.index follows the documents of allx", bool(len(test)) and test.min() == len(allx))
    _need(folder, "there are 500 documents for validation", len(x) + VALIDATION <= len(allx))

    n = int(test.max()) + 1
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


class _Sparse:
    """Stands in for scipy's `csr_matrix`: takes its state, runs none of its code."""

    def dense(self) -> np.ndarray:
        rows, columns = (int(size) for size in self.__dict__["_shape"])
        indptr, indices, data = (self.__dict__[part] for part in ("indptr", "indices", "data"))
        dense = np.zeros((rows, columns), np.float32)
        dense[np.repeat(np.arange(rows), np.diff(indptr)), indices] = data
        return dense


_reconstruct = np.empty(0).__reduce__()[0]

_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Sparse,
    ("scipy.sparse._csr", "csr_matrix"): _Sparse,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _KNOWN[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module_name}.{global_name}") from None


def _unpickle(path: Path) -> Any:
    """What a pickle of arrays, sparse matrices, dictionaries and lists holds."""
    try:
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; all eight files are at {SOURCE}") from None
    except Exception as error:  # a broken pickle may fail in any way
        raise DataError(
            f"{path} is no pickle of arrays, sparse matrices, dictionaries and lists ({error}); "
            f"the file is at {SOURCE}"
        ) from None


def _matrix(folder: str | Path, name: str, part: str) -> np.ndarray:
    path = _path(folder, name, part)
    value = _unpickle(path)
    try:
        matrix = value.dense() if isinstance(value, _Sparse) else np.asarray(value)
    except (KeyError, ValueError, IndexError, TypeError):
        matrix = np.empty(0)
    numbers = matrix.ndim == 2 and matrix.size > 0 and np.issubdtype(matrix.dtype, np.number)
    _need(path, "it is a matrix of numbers", numbers)
    return matrix


def _test_index(folder: str | Path, name: str) -> np.ndarray:
    path = _path(folder, name, "test.index")
    try:
        index = np.array([int(line) for line in path.read_text().split()], np.int64)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; all eight files are at {SOURCE}") from None
    except ValueError:
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
    return Graph(np.concatenate([pairs, pairs[:, ::-1]]), nodes=n)


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
