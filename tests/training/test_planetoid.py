"""Planetoid's files: read as PyG reads them, and refused with a reason when they are something else."""

from __future__ import annotations

import os
import pickle
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch_geometric.io import read_planetoid_data

import erlangen as er
from erlangen.errors import DataError, ParameterError
from erlangen.training import planetoid


def written(folder, name="cora", skipped=()):
    """A small data set in the published format: 6 documents to train on, 510 others, 8 tests."""
    rng = np.random.default_rng(0)
    n, words, classes, known = 524, 12, 3, 516
    x = (rng.random((n, words)) < 0.3).astype(np.float32)
    y = np.eye(classes)[rng.integers(classes, size=n)].astype(np.int32)
    test = rng.permutation(np.setdiff1d(np.arange(known, n), skipped))
    graph = {int(i): [int(j) for j in rng.integers(n, size=3)] for i in range(n) if i not in skipped}
    cited = [(i, j) for i, near in graph.items() for j in near if j not in skipped]
    graph = {i: [] for i in graph}
    for i, j in cited:  # the published lists name each citation at both ends
        graph[i].append(j)
        graph[j].append(i)
    graph[0] += [0, graph[0][0]]  # a self loop and an edge named twice, as in the published files
    parts = {"x": csr_matrix(x[:6]), "allx": csr_matrix(x[:known]), "tx": csr_matrix(x[test]), "y": y[:6]}
    parts |= {"ally": y[:known], "ty": y[test], "graph": graph}
    folder.mkdir(parents=True, exist_ok=True)
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, protocol=3))
    (folder / f"ind.{name}.test.index").write_text("\n".join(map(str, test)) + "\n")
    return folder


@pytest.mark.parametrize(("name", "skipped"), [("cora", ()), ("citeseer", (518, 521))])
def test_read_as_pyg_reads_it(tmp_path, name, skipped):
    data = planetoid.load(name, written(tmp_path, name, skipped))
    theirs = read_planetoid_data(str(tmp_path), name)
    total = theirs.x.sum(1, keepdim=True)
    torch.testing.assert_close(data.x, theirs.x / total.clamp(min=1))
    labelled = torch.ones(len(data.y), dtype=torch.bool)
    labelled[list(skipped)] = False
    assert torch.equal(data.y[labelled], theirs.y[labelled])
    assert data.graph == er.Graph.from_edge_index(theirs.edge_index, num_nodes=524)
    for ours, mask in ((data.train, "train"), (data.validation, "val"), (data.test, "test")):
        assert torch.equal(ours, theirs[f"{mask}_mask"].nonzero().squeeze(1))
    for node in skipped:
        assert not data.x[node].any()
        assert data.graph.on(524).row(node) == []


def test_the_files_may_lie_deeper(tmp_path):
    written(tmp_path / "Cora" / "raw")
    assert planetoid.find("Cora", tmp_path) == tmp_path / "Cora" / "raw"
    assert planetoid.load("CORA", tmp_path).classes == 3


def test_an_unknown_data_set_is_named(tmp_path):
    with pytest.raises(ParameterError, match="Cora, Citeseer, PubMed, got 'Reddit'"):
        planetoid.load("Reddit", tmp_path)


def test_a_copy_cut_short_is_noticed(tmp_path):
    written(tmp_path)
    (tmp_path / "ind.cora.ty").unlink()
    with pytest.raises(DataError, match=r"not ind\.cora\.ty; all eight are at https://"):
        planetoid.load("Cora", tmp_path)


class Boom:
    def __reduce__(self):
        return os.system, ("touch harmed",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    (tmp_path / "ind.cora.graph").write_bytes(pickle.dumps(Boom(), protocol=3))
    with pytest.raises(DataError, match=r"ind\.cora\.graph is no pickle of arrays.*names posix\.system"):
        planetoid.load("Cora", tmp_path)
    assert not (tmp_path / "harmed").exists()


def replaced(part, value):
    def change(folder):
        (folder / f"ind.cora.{part}").write_bytes(
            value if isinstance(value, bytes) else pickle.dumps(value, protocol=3)
        )

    return change


SHARED = list(range(3000))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (replaced("x", b""), "no pickle"),
        (replaced("x", b"not a pickle"), "no pickle"),
        (replaced("x", {}), "matrix of numbers"),
        (replaced("y", np.zeros(3)), "matrix of numbers"),
        (replaced("y", np.zeros((5, 3))), "as many rows"),
        (replaced("tx", np.zeros((8, 5))), "as many columns"),
        (replaced("ty", np.zeros((8, 4))), "as many columns"),
        (replaced("graph", [1, 2]), "maps the number of a document"),
        (replaced("graph", {0: ["a"]}), "maps the number of a document"),
        (replaced("graph", {0: [9999]}), "has 524 documents"),
        (replaced("test.index", b"12\ntwelve\n"), "one whole number a line"),
        (replaced("test.index", b"516\n" * 8), "listed twice"),
        (replaced("test.index", b"9" * 30), "one whole number a line"),
        (replaced("test.index", b"9" * 5000), "one whole number a line"),
        (replaced("test.index", b"516\n517\n518\n519\n520\n521\n522\n99999999"), "are small"),
        (replaced("graph", dict.fromkeys(range(3000), SHARED)), "maps the number of a document"),
        (replaced("test.index", b"1\n2\n3\n4\n5\n6\n7\n8\n"), "follows the documents of allx"),
    ],
)
def test_malformed_files_are_explained(tmp_path, change, message):
    change(written(tmp_path))
    with pytest.raises(DataError, match=message) as error:
        planetoid.load("Cora", tmp_path)
    assert "https://" in str(error.value)


def test_too_few_documents_for_validation(tmp_path):
    written(tmp_path)
    for part in ("allx", "ally"):
        old = pickle.loads((tmp_path / f"ind.cora.{part}").read_bytes())
        (tmp_path / f"ind.cora.{part}").write_bytes(pickle.dumps(old[:400], protocol=3))
    (tmp_path / "ind.cora.test.index").write_text("\n".join(map(str, range(400, 408))))
    with pytest.raises(DataError, match="500 documents for validation"):
        planetoid.load("Cora", tmp_path)


def test_what_is_missing_is_downloaded_through_pyg(tmp_path, monkeypatch):
    source, asked = written(tmp_path / "source"), []

    def download(url, folder, log):
        asked.append(url)
        os.makedirs(folder, exist_ok=True)
        name = url.rpartition("/")[2]
        (tmp_path / "data/Cora/raw" / name).write_bytes((source / name).read_bytes())

    monkeypatch.setattr("torch_geometric.data.download_url", download)
    assert planetoid.load("Cora", tmp_path / "data").classes == 3
    assert len(asked) == 8
    planetoid.load("Cora", tmp_path / "data")
    assert len(asked) == 8


def test_a_failing_download_says_where_to_get_the_files(tmp_path, monkeypatch):
    def refuse(*arguments, **keywords):
        raise OSError("no route to host")

    monkeypatch.setattr("torch_geometric.data.download_url", refuse)
    with pytest.raises(DataError, match=r"no files ind\.cora.*no route to host.*https://github"):
        planetoid.load("Cora", tmp_path)


def test_without_pyg_the_files_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(DataError, match=r"erlangen\[pyg\], or copy the eight files"):
        planetoid.load("Cora", tmp_path)


def test_a_sparse_matrix_of_lies_is_refused(tmp_path):
    written(tmp_path)
    bad = csr_matrix(np.eye(6, 12, dtype=np.float32))
    bad.indices = bad.indices + 100
    (tmp_path / "ind.cora.x").write_bytes(pickle.dumps(bad, protocol=3))
    with pytest.raises(DataError, match="matrix of numbers"):
        planetoid.load("Cora", tmp_path)


@pytest.mark.parametrize("part", ["x", "tx", "allx", "y", "ty", "ally"])
def test_numbers_that_are_no_words_or_labels_are_refused(tmp_path, part):
    written(tmp_path)
    path = tmp_path / f"ind.cora.{part}"
    value = planetoid._matrix(tmp_path, "cora", part).astype(np.float64)
    bad = [np.nan, np.inf, -np.inf, -1.0, 1e300] + ([0.5, 2.0] if "y" in part else [])
    for number in bad:
        changed = value.copy()
        changed[1, 0] = number
        path.write_bytes(pickle.dumps(changed, protocol=3))
        with pytest.raises(DataError, match=r"finite and not negative|at most one label"):
            planetoid.read("Cora", tmp_path)
    if "y" in part:
        changed = value.copy()
        changed[1] = 1
        path.write_bytes(pickle.dumps(changed, protocol=3))
        with pytest.raises(DataError, match="at most one label"):
            planetoid.read("Cora", tmp_path)
