"""Names are given only to what they equal exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.audit.identify import describe, identify
from erlangen.audit.support import Support
from erlangen.relations import Neighborhoods

N = 12
KNOWN = [
    er.Full(),
    er.Empty(),
    er.Identity(),
    er.Causal(),
    er.Causal().T,
    er.Window(lookback=3),
    er.Window(lookback=2, lookahead=1),
    er.Window(lookback=0, lookahead=4),
    er.Prefix(4),
    er.Blocks(4),
    er.Documents([3, 4, 5]),
    er.Causal() & er.Blocks(4),
    er.Causal() & er.Documents([3, 4, 5]),
    er.Window(lookback=2) & er.Documents([5, 7]),
    er.Dilated(3),
    er.Causal() & er.Dilated(2),
    er.Ring(1, 2),
    er.Padding(7),
    er.Padding(7, side="left"),
    er.Causal() & er.Padding(7),
    er.Window(lookback=2) & er.Padding(7),
    er.Global(keys=[0], queries=[0]),
    er.Window(lookback=2, lookahead=2) | er.Global(keys=[0, 5], queries=[0, 5]),
    er.Window(lookback=2) | er.Causal() & er.Global(keys=[0, 1]),
    er.Offset(-3),
    er.Offset(2),
    er.Causal() & ~er.Identity(),
    ~er.Identity(),
]


@pytest.mark.parametrize("relation", KNOWN, ids=str)
def test_known_relations_get_their_names(relation):
    found = identify(relation.on(N))
    assert found.on(N) == relation.on(N)
    assert not isinstance(found, er.Graph | er.FromMask)
    assert len(str(found)) <= len(str(relation))


def test_between_two_sequences():
    assert identify(er.Full().on(3, 5)) == er.Full()
    assert identify(er.Padding(4).on(3, 5)) == er.Padding(4)
    assert identify(er.Causal().on(2, 6)) == er.Causal()
    top_left = Neighborhoods.from_dense(np.tril(np.ones((2, 6), bool)))
    assert isinstance(identify(top_left), er.FromMask)


@settings(max_examples=200, deadline=None)
@given(q=st.integers(1, 6), k=st.integers(1, 6), data=st.data())
def test_every_name_is_exact(q, k, data):
    dense = np.array(data.draw(st.lists(st.booleans(), min_size=q * k, max_size=q * k))).reshape(q, k)
    bound = Neighborhoods.from_dense(dense)
    assert identify(bound).on(q, k) == bound


@settings(max_examples=100, deadline=None)
@given(relation=st.sampled_from(KNOWN), i=st.integers(0, N - 1), j=st.integers(0, N - 1))
def test_one_edge_off_is_another_name(relation, i, j):
    dense = relation.on(N).dense()
    dense[i, j] ^= True
    found = identify(Neighborhoods.from_dense(dense))
    assert np.array_equal(found.on(N).dense(), dense)
    assert found != relation


def test_rows_that_do_not_count():
    dense = er.Causal().on(4).dense()
    dense[3] = True
    dense[3, 1] = False
    assert identify(Neighborhoods.from_dense(dense), np.array([0, 1, 2])) == er.Causal()


def test_heads_and_items():
    causal, full = er.Causal().on(4), er.Full().on(4)
    assert describe(Support(((causal, causal), (causal, causal)))) == er.Causal()
    assert describe(Support(((causal, full), (causal, full)))) == er.PerHead([er.Causal(), er.Full()])
    assert describe(Support(((causal,), (full,)))) == er.Batch([er.Causal(), er.Full()])
