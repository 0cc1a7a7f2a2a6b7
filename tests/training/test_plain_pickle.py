"""The reader of pickles of numbers: reads what NumPy and scipy write, survives what an attacker writes."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import pickletools
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
from hostile_pickles import (
    ARRAY,
    BUILD,
    FALSE,
    GOOD,
    HOSTILE,
    P2,
    SPARSE_LIES,
    dtype,
    number,
    plain,
    raw,
    sparse,
)

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


def test_exactly_the_types_of_numbers_that_numpy_has_are_read():
    """Every code of a letter and a digit: one of NumPy's numbers, or refused."""
    for letter in "biufcmMOSUVx":
        for size in range(10):
            code = f"{letter}{size}"
            if code in TYPES:
                assert plain_pickle.read(P2 + dtype(code) + b".").code == code
            else:
                with pytest.raises(DataError):
                    plain_pickle.read(P2 + dtype(code) + b".")


@pytest.mark.parametrize("error", [TypeError, RuntimeError, MemoryError, AttributeError, RecursionError])
def test_a_step_that_fails_in_any_way_is_refused(monkeypatch, error):
    def fails(machine, name, argument):
        raise error("within")

    monkeypatch.setattr(plain_pickle._Machine, "take", fails)
    with pytest.raises(DataError, match="its instructions are broken: within"):
        plain_pickle.read(P2 + b"N.")


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8"])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_parts_of_every_width_are_the_matrix_of_wide_parts_or_refused(kind, data):
    """Against the rules of a sparse matrix in Python's integers, which never wrap."""
    ends = np.iinfo(kind)
    near = st.sampled_from([0, 1, 2, ends.max, ends.min, ends.max - 1, -2, -1])
    count = data.draw(st.integers(0, 4))
    indptr = [0, *data.draw(st.lists(near | st.integers(0, 4), min_size=1, max_size=4))]
    indices = data.draw(st.lists(st.integers(0, 2) | near, min_size=count, max_size=count))
    parts = {"_shape": (len(indptr) - 1, 3), "indptr": np.array(indptr, kind)}
    parts |= {"indices": np.array(indices, kind), "data": np.ones(count, "f4")}
    grows = all(a <= b for a, b in itertools.pairwise(indptr)) and indptr[-1] == count
    if not grows or not all(0 <= index < 3 for index in indices):
        with pytest.raises(DataError):
            plain_pickle.Sparse(parts).dense()
        return
    expected = np.zeros(parts["_shape"], np.float32)
    for row, (start, stop) in enumerate(itertools.pairwise(indptr)):
        for index in indices[start:stop]:
            expected[row, index] += 1
    assert np.array_equal(plain_pickle.Sparse(parts).dense(), expected)


@pytest.mark.parametrize("code", ["u1", ">u4", "f8"])
def test_arrays_of_one_string_take_no_more_memory_than_is_bounded(monkeypatch, code):
    """What a short pickle names again and again, each array copies."""
    monkeypatch.setattr(plain_pickle, "MAX_BYTES", 1 << 20)
    size, numbers = 1 << 16, (1 << 16) // int(code[-1])
    state = b"(" + number(1) + number(numbers) + b"\x85h\x01" + FALSE + b"h\x00t" + BUILD
    order, kind = (code[0], code[1:]) if code[0] == ">" else ("<", code)
    head = P2 + raw(bytes(size)) + b"q\x00" + plain(kind, order) + b"q\x01" + b"]"
    within = head + b"(" + (ARRAY + state) * 16 + b"e"
    assert len(within) < 1 << 20
    read = plain_pickle._Machine()
    for instruction, argument, _ in pickletools.genops(within + b"."):
        if instruction.name != "STOP":
            read.take(instruction.name, argument)
    assert read.room == 0
    for beyond in (head + b"(" + (ARRAY + state) * 17 + b"e.", head + ARRAY + state * 17 + b"."):
        with pytest.raises(DataError, match="the arrays have at most 1,048,576 bytes together"):
            plain_pickle.read(beyond)
