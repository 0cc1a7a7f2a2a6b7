"""`holds` on every integer type and on positions beyond 2^31, against Python's own integers."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import erlangen as er
import relation_oracle
from erlangen.errors import ParameterError
from erlangen.relations import Relation
from erlangen.relations.catalogue import kinds
from erlangen.relations.lookup import indices
from erlangen.relations.sizes import MAX_POSITION
from erlangen.testing.strategies import examples

TYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
KEYS = 12

SIZES = st.one_of(st.integers(0, 12), st.integers(0, 300), st.sampled_from([2**31, 2**33, 10**12, 10**30]))
POSITIVE = SIZES.filter(bool)
SIGNED = st.builds(lambda size, sign: sign * size, SIZES, st.sampled_from([1, -1]))
NEAR = st.lists(st.integers(0, 11), max_size=4)

MADE = {
    er.Full: st.just(er.Full()),
    er.Empty: st.just(er.Empty()),
    er.Identity: st.just(er.Identity()),
    er.Causal: st.just(er.Causal()),
    er.Prefix: st.builds(er.Prefix, SIZES),
    er.Window: st.builds(er.Window, SIZES, SIZES),
    er.Ring: st.builds(er.Ring, SIZES, SIZES),
    er.Dilated: st.builds(er.Dilated, POSITIVE),
    er.Bipartite: st.builds(lambda m: er.Bipartite(m, KEYS - m), st.integers(0, KEYS)),
    er.Documents: st.sampled_from([er.Documents([5, 0, 7]), er.Documents([12])]),
    er.Blocks: st.builds(er.Blocks, POSITIVE),
    er.Padding: st.builds(er.Padding, SIZES, st.sampled_from(["left", "right"])),
    er.Global: st.builds(er.Global, NEAR | st.just(range(3, 2**31 - 2, 7)), NEAR),
    er.Grid: st.builds(lambda radius: er.Grid((3, 4), radius), SIZES),
    er.Offset: st.builds(er.Offset, SIGNED),
    er.GridOffset: st.builds(lambda a, b: er.GridOffset((3, 4), (a, b), queries=(2, 4)), SIGNED, SIGNED),
    er.Graph: st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=9).map(er.Graph),
    er.FromMask: st.sampled_from([er.FromMask(np.tri(5, 12, 3, bool)), er.FromMask(np.eye(12) > 0)]),
    er.Random: st.builds(er.Random, st.integers(0, 5), st.integers(0, 9)),
}


for _kind in set(kinds(Relation).values()) - {er.Nearest}:  # one that is not made here is made as it says
    MADE.setdefault(_kind, examples(_kind, KEYS))


def cell(shape, index):
    return None if not 0 <= index < prod(shape) else tuple(map(int, np.unravel_index(index, shape)))


def at_offset(r, i, j):
    query, key = cell(r.queries, i - (prod(r.shape) - prod(r.queries))), cell(r.shape, j)
    return None not in (query, key) and all(k - q == d for q, k, d in zip(query, key, r.by, strict=True))


def near(r, i, j):
    a, b = cell(r.shape, i), cell(r.shape, j)
    return None not in (a, b) and all(abs(x - y) <= w for x, y, w in zip(a, b, r.radius, strict=True))


def document(r, i):
    return next((d for d in range(len(r.lengths)) if sum(r.lengths[:d]) <= i < sum(r.lengths[: d + 1])), None)


def masked(r, i, j):
    mask = r.on(KEYS).dense() if not isinstance(r, er.FromMask) else r._bound.dense()
    row = i - (KEYS - len(mask))
    return 0 <= row < len(mask) and 0 <= j < KEYS and bool(mask[row, j])


# From the definitions, on Python's integers, which have no end.
PAIR = {
    er.Full: lambda r, i, j: True,
    er.Empty: lambda r, i, j: False,
    er.Identity: lambda r, i, j: i == j,
    er.Causal: lambda r, i, j: j <= i,
    er.Prefix: lambda r, i, j: j <= i or j < r.length,
    er.Window: lambda r, i, j: -r.lookahead <= i - j <= r.lookback,
    er.Ring: lambda r, i, j: (i - j) % KEYS <= r.lookback or (j - i) % KEYS <= r.lookahead,
    er.Dilated: lambda r, i, j: (i - j) % r.step == 0,
    er.Bipartite: lambda r, i, j: i >= r.encoder and j < r.encoder,
    er.Documents: lambda r, i, j: document(r, i) == document(r, j) is not None,
    er.Blocks: lambda r, i, j: i // r.size == j // r.size,
    er.Padding: lambda r, i, j: j < r.length if r.side == "right" else j >= KEYS - r.length,
    er.Global: lambda r, i, j: j in r.keys or i in r.queries,
    er.Grid: near,
    er.Offset: lambda r, i, j: j - i == r.by,
    er.GridOffset: at_offset,
    er.Graph: lambda r, i, j: [i, j] in r.edges().tolist(),
    er.FromMask: masked,
    er.Random: masked,
}


for _kind in MADE:
    PAIR.setdefault(_kind, lambda r, i, j: relation_oracle.PAIR[type(r)](r, i, j, KEYS))


def test_every_relation_is_here():
    """A new relation that sizes alone decide cannot be forgotten."""
    known = set(kinds(Relation).values()) - {er.Nearest}
    assert known == set(MADE) == set(PAIR)


def positions(kind):
    low, high = (
        max(int(np.iinfo(kind).min), 1 - MAX_POSITION),
        min(int(np.iinfo(kind).max), MAX_POSITION - 1),
    )
    edges = [p for p in (2**31 - 2, 2**31 - 1, 2**31, 2**32 + 5, 2**40, low, high, -5) if low <= p <= high]
    return st.one_of(st.integers(0, 11), st.integers(low, high), st.sampled_from(edges))


@st.composite
def cases(draw):
    relation = draw(st.one_of(*MADE.values()))
    if draw(st.booleans()):
        relation = ~relation
    types = draw(st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)))
    pairs = draw(st.lists(st.tuples(*map(positions, types)), min_size=1, max_size=6))
    return relation, types, pairs


def expected(relation, i, j):
    if isinstance(relation, er.relations.expressions.Complement):
        return not expected(relation.operands[0], i, j)
    return PAIR[type(relation)](relation, i, j)


@given(cases())
@settings(max_examples=600, deadline=None)
def test_holds_is_what_python_integers_say(case):
    relation, types, pairs = case
    wanted = [expected(relation, i, j) for i, j in pairs]
    arrays = [np.array(side, kind) for side, kind in zip(zip(*pairs, strict=True), types, strict=True)]
    assert relation.holds(*arrays, keys=KEYS).tolist() == wanted
    tensors = [torch.from_numpy(array) for array in arrays]
    assert relation.holds(*tensors, keys=KEYS).tolist() == wanted
    assert relation.holds(tensors[0], arrays[1], keys=KEYS).tolist() == wanted
    scalars = [array[0] for array in arrays]
    assert bool(relation.holds(*scalars, keys=KEYS)) is wanted[0]
    assert bool(relation.holds(int(scalars[0]), int(scalars[1]), keys=KEYS)) is wanted[0]


@given(cases(), st.data())
@settings(max_examples=200, deadline=None)
def test_rows_and_runs_agree_at_far_positions(case, data):
    """What is bound at positions of any integer type is what `holds` says there."""
    relation, (kind, _), pairs = case
    assume(not isinstance(relation, er.FromMask | er.Random | er.Ring | er.Grid))
    assume(not isinstance(relation, er.Padding) or relation.length <= KEYS)
    assume(not isinstance(relation, er.relations.expressions.Complement))
    at = np.array([i for i, _ in pairs], kind)
    wanted = [[expected(relation, int(i), j) for j in range(KEYS)] for i in at]
    assert relation.rows(at, keys=KEYS).dense().tolist() == wanted
    for i, row in zip(at, wanted, strict=True):
        run = relation.run(i, KEYS)
        assert run is None or [j in run for j in range(KEYS)] == row


@pytest.mark.parametrize("far", [2**61, -(2**61), 2**63 - 1, 2**63, 2**64 - 1, 2**200])
def test_positions_beyond_are_refused(far):
    forms = [far, [far]]
    if -(2**63) <= far < 2**63:
        forms += [np.array([far], np.int64), torch.tensor([far])]
    elif 0 <= far < 2**64:
        forms += [np.array([far], np.uint64), torch.tensor(np.array([far], np.uint64))]
    for form in forms:
        with pytest.raises(ParameterError, match=r"between -2\^61 and 2\^61"):
            er.Causal().holds(form, 0)
    with pytest.raises(ParameterError):
        er.Causal().rows([far], keys=3)


@pytest.mark.parametrize(
    "bad", [0.5, [1.0], True, np.array([True]), torch.tensor([0.5]), torch.tensor(True), "a", 1j]
)
def test_what_is_no_integer_is_refused(bad):
    for i, j in ((bad, 0), (0, bad)):
        with pytest.raises(ParameterError, match="positions must be integers"):
            er.Window(2).holds(i, j)


def test_no_positions_are_an_empty_answer():
    assert er.Window(2).holds([], []).tolist() == []
    assert (
        er.Window(2).holds(torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.uint8)).tolist()
        == []
    )


def test_inside_vmap_only_the_type_is_widened():
    at = torch.arange(6, dtype=torch.int32)
    held = torch.vmap(torch.vmap(er.Window(2).holds, (None, 0)), (0, None))(at, at)
    assert held.tolist() == er.Window(2).on(6).dense().tolist()
    assert [array.dtype for array in indices(np.uint8(1), torch.tensor(1, dtype=torch.uint8))] == [
        torch.int64
    ] * 2
