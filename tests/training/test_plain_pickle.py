"""The reader of pickles of numbers: reads what NumPy and scipy write, survives what an attacker writes."""

from __future__ import annotations

import contextlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from erlangen.errors import DataError
from erlangen.training import plain_pickle
from hostile_pickles import GOOD, HOSTILE, P2, SPARSE_LIES, sparse

TYPES = ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f8"]


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("kind", TYPES)
def test_arrays_are_read_as_numpy_writes_them(kind, protocol):
    for value in (
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.zeros((0, 3)),
    ):
        array = value.astype(kind)
        found = plain_pickle.read(pickle.dumps(array, protocol=protocol))
        assert np.array_equal(found, array)
        assert found.dtype == array.dtype.newbyteorder("=")


@pytest.mark.parametrize("protocol", [3, 4])
def test_sparse_matrices_are_read_as_scipy_writes_them(protocol):
    matrix = csr_matrix((np.random.default_rng(0).random((7, 5)) < 0.4).astype(np.float32))
    assert np.array_equal(
        plain_pickle.read(pickle.dumps(matrix, protocol=protocol)).dense(), matrix.toarray()
    )
    twice = csr_matrix((np.ones(2, np.float32), np.zeros(2, np.int32), np.array([0, 2])), shape=(1, 2))
    assert plain_pickle.read(pickle.dumps(twice, protocol=protocol)).dense().tolist() == [[2, 0]]
    assert plain_pickle.read(P2 + sparse(*GOOD) + b".").dense().tolist() == [[3, 0], [0, 4]]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers(0, 99) | st.text(max_size=3), inner, max_size=4)
    ),
)


@given(VALUES, st.integers(0, 4))
@settings(max_examples=200, deadline=None)
def test_plain_values_come_back(value, protocol):
    assert plain_pickle.read(pickle.dumps(value, protocol=protocol)) == value


@given(st.binary(max_size=60), st.sampled_from([P2, b"", b"\x80\x04"]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_read_or_refused(tail, head):
    with contextlib.suppress(DataError):
        plain_pickle.read(head + tail)


def test_hostile_pickles_are_refused_in_a_process_of_their_own():
    """In another process: what fails here may end the process that reads."""
    script = Path(__file__).parents[1] / "hostile_pickles.py"
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-500:] + run.stderr[-2000:]
    seen = dict(line.split(" | ")[:2] for line in run.stdout.splitlines())
    assert dict.fromkeys((*HOSTILE, *SPARSE_LIES), "refused") == seen
