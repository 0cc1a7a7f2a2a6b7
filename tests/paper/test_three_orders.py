"""The three orders: every edge checked again, and what Table 1 has the other way round."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from erlangen.errors import ParameterError
from erlangen.paper import hierarchy
from erlangen.paper.hasse import figure, levels, places, save
from erlangen.relations import Bipartite, Causal, Full, Identity, Window


def bound(label, n):
    relations = {
        "Full": Full(),
        "Masked": Causal(),
        "Identity": Identity(),
        "Encoder-Decoder": Bipartite(n // 2, n - n // 2),
    }
    if label.startswith("Window "):
        return Window(lookback=int(label.split()[1])).on(n)
    return relations[label].on(n)


@pytest.mark.parametrize("n", [3, 4, 6, 8, 20])
def test_mask_order_is_inclusion(n):
    shown = hierarchy("mask", n=n)
    labels = [node.label for node in shown.nodes]
    below = {(a, b) for a, b in permutations(labels, 2) if bound(b, n) < bound(a, n)}
    covers = {(a, b) for a, b in below if not any((a, c) in below and (c, b) in below for c in labels)}
    assert {(e.upper, e.lower) for e in shown.edges} == covers
    for edge in shown.edges:
        i, j = edge.certificate["strict"]
        assert bound(edge.upper, n).contains(i, j)
        assert not bound(edge.lower, n).contains(i, j)
        assert edge.certificate["edges"] == [bound(edge.upper, n).num_edges, bound(edge.lower, n).num_edges]
    assert shown.table1
    assert shown.disagreements == ()


@pytest.mark.parametrize("n", [3, 4, 5])
def test_symmetry_order_is_inclusion_of_groups(n):
    shown = hierarchy("symmetry", n=n)

    def automorphisms(relation):
        mask = relation.on(n).dense()
        return {pi for pi in permutations(range(n)) if (mask[np.ix_(pi, pi)] == mask).all()}

    groups = {
        "Full": automorphisms(Full()),
        "Identity": automorphisms(Identity()),
        "Encoder-Decoder": automorphisms(Bipartite(n // 2, n - n // 2)),
        "Masked": automorphisms(Causal()),
        "Window": automorphisms(Window(lookback=1)),
    }
    members = {node.label: node.note.split(", ") for node in shown.nodes}
    for names in members.values():
        assert all(groups[name] == groups[names[0]] for name in names)
    assert len(shown.edges) == 2
    for edge in shown.edges:
        upper, lower = (groups[members[label][0]] for label in (edge.upper, edge.lower))
        assert lower < upper
        assert tuple(edge.certificate["strict"]) in upper - lower
        assert edge.certificate["orders"] == [str(len(upper)), str(len(lower))]
    against = {(c.upper, c.lower) for c in shown.disagreements}
    assert against == {("bipartite", "total-order"), ("bipartite", "previous")}


def test_family_order():
    shown = hierarchy("family", n=6)
    edges = {(e.upper, e.lower): e.certificate for e in shown.edges}
    assert set(edges) == {
        ("Graph", "Sparse"),
        ("Sparse", "Self"),
        ("Sparse", "Window"),
        ("Sparse", "Encoder-Decoder"),
        ("Window", "Masked"),
        ("Window", "Identity"),
    }
    assert list(edges["Window", "Masked"]["settings"].values()) == ["p = 5"]
    assert list(edges["Window", "Identity"]["settings"].values()) == ["p = 0"]
    assert Window(lookback=5).on(6) == Causal().on(6)
    assert [(c.upper, c.lower) for c in shown.disagreements] == [("previous", "total-order")]


def test_bad_input_is_refused():
    with pytest.raises(ParameterError, match="'size'"):
        hierarchy("size")
    with pytest.raises(ParameterError, match=">= 3"):
        hierarchy("mask", n=2)
    with pytest.raises(ParameterError, match="<= 64"):
        hierarchy("mask", n=65)


@pytest.mark.parametrize("order", ["family", "mask", "symmetry"])
def test_arrows_point_down_and_boxes_do_not_overlap(order):
    shown = hierarchy(order, n=7)
    level, at = levels(shown), places(shown)
    assert all(level[edge.upper] < level[edge.lower] for edge in shown.edges)
    assert all(at[edge.upper][1] > at[edge.lower][1] for edge in shown.edges)
    for (xa, ya), (xb, yb) in permutations(at.values(), 2):
        assert abs(xa - xb) >= 2.04 or abs(ya - yb) >= 0.6


def test_the_picture_names_every_node_and_every_disagreement(tmp_path: Path):
    orders = [hierarchy(order) for order in ("family", "mask", "symmetry")]
    path = tmp_path / "hierarchy.svg"
    save(orders, path)
    text = path.read_text()
    for name in (
        "Graph",
        "Sparse",
        "Masked",
        "Identity",
        "Window 4",
        "S3 × S3",
        "ranks masked above strided",
    ):
        assert name in text
    save(orders, tmp_path / "hierarchy.png")
    assert (tmp_path / "hierarchy.png").stat().st_size > 20_000
    assert len(figure(orders[:1]).axes) == 1
