"""Sizes for display: asked for, the relation's own, or refused."""

import pytest

from erlangen.errors import DataError, SizeError
from erlangen.relations import (
    Batch,
    Bipartite,
    Causal,
    Dilated,
    Documents,
    FromMask,
    Full,
    Graph,
    Grid,
    Nearest,
    Padding,
    PerHead,
    Random,
    Window,
)
from erlangen.show.affordable import bind, bind_all, sizes_for


@pytest.mark.parametrize(
    ("relation", "sizes"),
    [
        (Bipartite(3, 4), (7, 7)),
        (Documents([2, 3]), (5, 5)),
        (Grid((2, 3), 1), (6, 6)),
        (Grid((2, 3, 4), 1), (24, 24)),
        (Graph([(0, 1)], nodes=5), (5, 5)),
        (Graph([(0, 1)]), None),
        (FromMask([[1, 0, 1]]), (1, 3)),
        (~(Causal() @ Documents([2, 3])).closure(), (5, 5)),
        (Window(3) | Causal().T, None),
    ],
)
def test_own_sizes(relation, sizes):
    assert relation.own_sizes == sizes
    if sizes is not None:
        bound = relation.on(*sizes)
        assert (bound.queries, bound.keys) == sizes


def test_own_sizes_that_disagree():
    with pytest.raises(SizeError, match="different sizes: 5 queries x 5 keys and 7 queries x 7 keys"):
        (Documents([2, 3]) & Bipartite(3, 4)).own_sizes  # noqa: B018
    with pytest.raises(SizeError, match="members of different sizes"):
        sizes_for(Batch([Documents([2]), Documents([3])]), None, None)


def test_families_take_the_size_of_any_member():
    bound = bind_all(PerHead([Causal(), Documents([2, 3])]), None, None)
    assert [(place, neighborhoods.queries) for place, _, neighborhoods in bound] == [
        ("head 0", 5),
        ("head 1", 5),
    ]


def test_the_sizes_asked_for_are_used():
    ((place, relation, bound),) = bind_all(Causal(), 2, 5)
    assert (place, relation) == ("", Causal())
    assert bound == Causal().on(2, 5)


@pytest.mark.parametrize(
    "relation",
    [
        Dilated(1),
        Dilated(2),
        Causal() & Dilated(2),
        Random(10**9, seed=0),
        Random(30_000, seed=1).T,
        Full() - Dilated(3),
    ],
)
def test_what_would_take_gigabytes_is_refused(relation):
    with pytest.raises(SizeError, match="choose smaller sizes"):
        bind(relation, 1_000_000)


def test_sizes_beyond_memory_are_refused():
    with pytest.raises(SizeError, match="choose smaller sizes"):
        bind(Causal(), 2_000_000_000)


def test_structured_relations_are_bound_at_large_sizes():
    assert bind(Window(lookback=8), 1_000_000).num_edges == 1_000_000 * 9 - 36


@pytest.mark.parametrize(("queries", "keys"), [(-1, None), (3, -1), (10**12, None)])
def test_sizes_outside_their_domain(queries, keys):
    with pytest.raises(ValueError, match=r"queries|keys"):
        bind(Full(), queries, keys)


def test_more_queries_than_keys():
    assert bind(Full(), 7, 3).num_edges == 21


def test_errors_of_the_relation_come_through():
    with pytest.raises(SizeError, match="7 joint positions"):
        bind(Bipartite(3, 4), 5)
    with pytest.raises(SizeError, match="real keys"):
        bind(Padding(9), 5)
    with pytest.raises(DataError, match="depends on the data"):
        bind(Nearest(3) & Causal(), 5)
