"""Relations from files, and clear errors for malformed ones."""

from __future__ import annotations

import numpy as np
import pytest

from erlangen.errors import DataError, ErlangenError
from erlangen.relations import Causal, FromMask, Graph
from erlangen.relations.relation_files import is_relation_file, read_relation


def test_masks_round_trip(tmp_path):
    mask = Causal().on(4).dense()
    np.save(tmp_path / "mask.npy", mask)
    np.save(tmp_path / "bytes.npy", mask.astype(np.uint8))
    np.savetxt(tmp_path / "mask.csv", mask.astype(int), fmt="%d", delimiter=",")
    (tmp_path / "words.csv").write_text("True, False\ntrue,TRUE\n\n")
    for name in ("mask.npy", "bytes.npy", "mask.csv"):
        assert read_relation(tmp_path / name) == FromMask(mask)
    assert read_relation(tmp_path / "words.csv") == FromMask([[1, 0], [1, 1]])


def test_edge_lists(tmp_path):
    (tmp_path / "graph.edges").write_text("# query key\n0 1\n2,0\n\n")
    assert read_relation(tmp_path / "graph.edges") == Graph([(0, 1), (2, 0)])
    assert read_relation(str(tmp_path / "graph.edges"), nodes=5) == Graph([(0, 1), (2, 0)], nodes=5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("mask.csv", b"1,0\n1\n", r"line 2: 1 entries, but the first row has 2"),
        ("mask.csv", b"1,0\n1,x\n", r"line 2, entry 2: expected 0 or 1, got 'x'"),
        ("mask.csv", b"0.0,0.0\n", r"line 1, entry 1: expected 0 or 1, got '0.0'"),
        ("mask.csv", b"1,2\n", r"line 1, entry 2: expected 0 or 1, got '2'"),
        ("mask.csv", b"", r"no rows"),
        ("mask.csv", b"\xff\xfe\x00", r"UTF-8"),
        ("mask.npy", b"not numpy", r"not a NumPy array file"),
        ("mask.npy", b"", r"not a NumPy array file"),
        ("graph.edges", b"0 1\n0 -1\n", r"line 2: expected `query key`"),
        ("graph.edges", b"0 1 2\n", r"line 1: expected `query key`"),
        ("graph.edges", b"a b\n", r"line 1: expected `query key`"),
        ("graph.edges", b"0 99999999999\n", r"position 99999999999 is beyond"),
        ("mask.json", b"[]", r"expected a file ending in"),
    ],
)
def test_malformed_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_relation(tmp_path / name)


def test_arrays_that_are_no_masks(tmp_path):
    for array, message in (
        (np.zeros(3), "shape"),
        (np.full((2, 2), 2), "booleans or 0 and 1"),
        *(
            (np.zeros((2, 2), kind), f"got {kind}; of an additive mask save mask == 0")
            for kind in ("float16", "float32", "float64", "complex64")
        ),
        (np.array([["a"]]), "booleans or 0 and 1"),
        (np.array([[None]], dtype=object), "not a NumPy array file"),
    ):
        np.save(tmp_path / "mask.npy", array, allow_pickle=True)
        with pytest.raises(DataError, match=message):
            read_relation(tmp_path / "mask.npy")
    with pytest.raises(DataError, match="no such file"):
        read_relation(tmp_path / "missing.npy")
    (tmp_path / "graph.edges").write_text("0 7\n")
    with pytest.raises(ErlangenError, match="position 7"):
        read_relation(tmp_path / "graph.edges", nodes=3)


def test_what_counts_as_a_file():
    assert is_relation_file("some/folder/mask.NPY")
    assert not is_relation_file("Causal() & Window(lookback=3)")
    assert not is_relation_file("Causal().T")
