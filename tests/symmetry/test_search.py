"""Search: scale, budget, refused generators, names."""

from __future__ import annotations

import time

import numpy as np
import pytest

from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.relations import Batch, Causal, FromMask, Full, Graph, Grid, Neighborhoods, Ring
from erlangen.symmetry import automorphisms as module
from erlangen.symmetry import bliss_search as search_module
from erlangen.symmetry import stack_symmetry, symmetry
from erlangen.symmetry.bliss_search import Component, search
from erlangen.symmetry.group_shapes import TRIVIAL, Symmetric
from erlangen.symmetry.moves import Move, keeps
from erlangen.symmetry.naming import recognise
from erlangen.symmetry.refinement import refine
from erlangen.symmetry.twins import equal_rows, reduce


def latin(bits: int) -> Neighborhoods:
    """Cells of the addition table of Z_2^bits, related when in one row, one column or of one value."""
    side = 2**bits
    a, b = np.divmod(np.arange(side * side), side)
    mask = (a[:, None] == a) | (b[:, None] == b) | ((a ^ b)[:, None] == (a ^ b))
    return Neighborhoods.from_dense(mask)


def directed_cycles(count: int, length: int) -> Graph:
    points = np.arange(count * length).reshape(count, length)
    return Graph(np.stack([points, np.roll(points, -1, axis=1)], -1).reshape(-1, 2), nodes=count * length)


def test_a_large_random_graph_is_rigid():
    rng = np.random.default_rng(0)
    bound = Neighborhoods.from_edges(100_000, 100_000, rng.integers(0, 100_000, (1_000_000, 2)))
    group = symmetry(bound)
    assert (group.order, group.exact, group.trivial) == (1, True, True)


def test_a_sparse_random_graph_has_many_twins_and_equal_components():
    rng = np.random.default_rng(1)
    bound = Neighborhoods.from_edges(3000, 3000, rng.integers(0, 3000, (1500, 2)))
    group = symmetry(bound, budget=60.0)
    assert group.exact
    assert all(keeps(bound, move) for move in group.moves)
    isolated = np.flatnonzero((bound.degrees == 0) & (bound.T.degrees == 0))
    assert len(group.orbits[int(np.searchsorted(np.unique(group.orbit_of), isolated[0]))]) == isolated.size


@pytest.mark.parametrize(("count", "length"), [(1, 7), (2, 4), (5, 3), (40, 6)])
def test_equal_components_give_a_wreath_product(count, length):
    expected = f"C{length}" if count == 1 else f"C{length} wr S{count}"
    assert symmetry(directed_cycles(count, length)).name == expected
    assert symmetry(~directed_cycles(count, length)).name == expected


def test_a_large_clique_union_never_reaches_the_search(monkeypatch):
    def refuse(*_):
        raise AssertionError("searched")

    monkeypatch.setattr(module, "search", refuse)
    mask = np.kron(np.eye(3, dtype=bool), np.ones((40, 40), bool))
    assert symmetry(FromMask(mask)).name == "S40 wr S3"
    with pytest.raises(AssertionError, match="searched"):
        symmetry(directed_cycles(1, 5))


def test_without_time_the_answer_is_a_lower_bound():
    group = symmetry(latin(3), budget=0.0)
    assert not group.exact
    assert group.evidence == "at least"
    assert str(group).startswith("order at least ")
    assert group.trivial is None or group.moves
    whole = symmetry(latin(3))
    assert group.order <= whole.order == 64512
    assert group.is_subgroup_of(whole) in (None, True)


def test_a_running_search_stops_at_the_deadline(monkeypatch):
    """A clock that advances at every look: the search is stopped in the middle."""
    ticks = iter(range(10**9))
    monkeypatch.setattr(search_module.time, "monotonic", lambda: float(next(ticks)))
    bound = latin(4)
    (part,) = search([bound], np.zeros(bound.queries, np.int64), deadline=12.0)
    assert not part.complete
    assert next(ticks) < 100
    assert all(keeps(bound, Move.of(generator)) for generator in part.generators)


def test_a_search_that_takes_long_really_stops(monkeypatch):
    bound = latin(5)  # 1024 points and 96,000 edges: begun, and far from finished in this time
    monkeypatch.setattr(search_module, "_EDGES_PER_SECOND", 10**9)
    (part,) = search([bound], np.zeros(bound.queries, np.int64), deadline=time.monotonic() + 0.05)
    assert not part.complete


def test_a_graph_too_large_for_the_budget_is_not_begun(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("begun")

    monkeypatch.setattr(search_module, "_component", refuse)
    bound = latin(4)
    (part,) = search([bound], np.zeros(bound.queries, np.int64), deadline=time.monotonic() + 1e-3)
    assert not part.complete
    with pytest.raises(AssertionError, match="begun"):
        search([bound], np.zeros(bound.queries, np.int64), deadline=time.monotonic() + 60)


@pytest.mark.parametrize(
    "wrong",
    [
        Component(np.arange(5)[None, :], [np.array([1, 0, 2, 3, 4])], 2, complete=True),
        Component(np.arange(5)[None, :], [np.array([0, 2, 3, 4, 1])], 4, complete=True),
        Component(np.array([[0, 1], [2, 3]]), [], 1, complete=True),
    ],
)
def test_a_corrupted_generator_is_refused(monkeypatch, wrong):
    monkeypatch.setattr(module, "search", lambda *_: [wrong])
    with pytest.raises(ErlangenError, match="not an automorphism"):
        symmetry(directed_cycles(1, 5))


def test_refinement_tells_apart_only_what_differs():
    ring = Ring(1, 1).on(9)
    assert refine([ring], np.zeros(9, np.int64))[1] == 1
    path = Neighborhoods.from_edges(9, 9, [(i, i + 1) for i in range(8)])
    assert refine([path], np.zeros(9, np.int64))[1] == 9
    marked = np.arange(9) == 4
    assert refine([ring], marked.astype(np.int64))[1] == 5


def test_equal_rows_survive_a_hash_collision(monkeypatch):
    import erlangen.symmetry.twins as twins

    bound = Neighborhoods.from_edges(4, 4, [(0, 1), (1, 1), (2, 3), (3, 1)])
    expected = equal_rows(bound, np.zeros(4, np.int64))
    monkeypatch.setattr(twins, "mix", lambda values, salt: np.zeros(values.shape, np.uint64))
    collided = equal_rows(bound, np.zeros(4, np.int64))
    assert (collided[:, None] == collided).tolist() == (expected[:, None] == expected).tolist()
    labelled = equal_rows(bound, np.array([0, 1, 0, 0]))
    assert len(set(labelled.tolist())) == 3


def test_nested_twins():
    inner = np.kron(np.eye(2, dtype=bool), np.ones((3, 3), bool))
    outer = np.kron(~np.eye(2, dtype=bool), np.ones((6, 6), bool))
    mask = np.kron(np.eye(2, dtype=bool), inner) | outer
    assert symmetry(FromMask(mask)).name == "(S3 wr S2) wr S2"
    assert reduce([Neighborhoods.from_dense(mask)], np.zeros(12, np.int64)).shapes[0].order == 72 * 72 * 2


@pytest.mark.parametrize(
    ("relation", "name"),
    [
        (Grid((2, 3), 1), None),
        (Grid((3, 4), 1), "Z2 x Z2"),
        (Grid((3, 3), 1), "D4"),
        (Graph([(0, 1), (1, 0), (1, 2), (2, 1)], nodes=3), "S2"),
        (Graph([(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)], nodes=4), "Z2"),
        (directed_cycles(1, 2), "S2"),
        (Graph([(i, i ^ (1 << b)) for i in range(8) for b in range(3)], nodes=8), None),
    ],
)
def test_names(relation, name):
    group = symmetry(relation)
    if name is None:
        assert group.order in (16, 48)
    else:
        assert group.name == name


def test_names_of_groups_by_their_elements():
    def name(order, *generators):
        shape = recognise([np.array(g) for g in generators], order, [TRIVIAL] * len(generators[0]))
        return None if shape is None else shape.name

    assert name(6, [1, 2, 0, 4, 5, 3], [3, 5, 4, 0, 2, 1]) == "S3"  # regular
    assert name(6, [1, 2, 3, 4, 5, 0]) == "C6"
    assert name(6, [1, 0, 2, 3, 4], [0, 1, 3, 4, 2]) == "Z2 x C3"
    assert name(10, [1, 2, 3, 4, 0], [0, 4, 3, 2, 1]) == "D5"
    assert name(12, [1, 2, 0, 3], [1, 0, 3, 2]) is None  # A4
    assert name(9, [1, 2, 0, 4, 5, 3, 7, 8, 6], [3, 4, 5, 6, 7, 8, 0, 1, 2]) == "C3 x C3"
    # The same generators with another order: the claim does not fit, so there is no name.
    assert name(12, [1, 0, 2, 3, 4], [0, 1, 3, 4, 2]) is None
    inner = [Symmetric(2)] * 3
    assert recognise([np.array([1, 2, 0])], 3, inner).name == "S2 wr C3"


def test_a_ring_of_pairs():
    circle = np.roll(np.eye(5, dtype=bool), 1, axis=1)
    assert symmetry(FromMask(np.kron(circle, np.ones((2, 2), bool)))).name == "S2 wr C5"
    assert symmetry(FromMask(np.kron(circle | circle.T, np.ones((2, 2), bool)))).name == "S2 wr D5"


def test_membership_and_subgroups():
    ring, cycle = symmetry(Ring(1, 1), 7), symmetry(Ring(1, 0), 7)
    assert cycle.is_subgroup_of(ring)
    assert not ring.is_subgroup_of(cycle)
    assert [1, 2, 3, 4, 5, 6, 0] in cycle
    with pytest.raises(ParameterError, match=r"permutation of 0\.\.6"):
        ring.contains([0, 1, 2])
    with pytest.raises(ParameterError, match="permutation"):
        ring.contains([0, 0, 1, 2, 3, 4, 5])
    with pytest.raises(ParameterError, match="same points"):
        ring.is_subgroup_of(symmetry(Full(), 6))
    with pytest.raises(ParameterError, match="joint=False"):
        ring.contains(list(range(7)), list(range(7)))
    with pytest.raises(ParameterError, match="more than"):
        next(iter(symmetry(Full(), 50).elements()))


def test_bad_questions():
    with pytest.raises(SizeError, match="no size of its own"):
        symmetry(Causal())
    with pytest.raises(SizeError, match="joint=False"):
        symmetry(Full(), 3, keys=4)
    with pytest.raises(SizeError, match="does not fit 4"):
        symmetry(Causal().on(3), 4)
    with pytest.raises(ParameterError, match="per batch item"):
        symmetry(Batch([Full()]), 3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="takes a relation"):
        symmetry("Causal()", 3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="seconds"):
        symmetry(Causal(), 3, budget=-1)
    with pytest.raises(ParameterError, match="at least one layer"):
        stack_symmetry([], 3)
    with pytest.raises(SizeError):
        symmetry(Graph([(0, 1)], nodes=2), 3)


def test_depth_is_not_symmetry():
    layer = Ring(1, 1)
    assert symmetry(layer.reach(3), 6).order == 720
    assert stack_symmetry([layer, layer, layer], 6).order == 12
    assert stack_symmetry([layer, Causal()], 6).trivial
