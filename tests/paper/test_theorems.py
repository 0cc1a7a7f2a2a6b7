"""Every statement verifies on the real implementation, and fails on a broken one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import erlangen.nn.graph_layer
import erlangen.nn.paper
import erlangen.paper.theorems.equivariance as equivariance_items
import erlangen.paper.theorems.ranking as ranking_items
from erlangen.attention import attend
from erlangen.attention.binding import clear_cache
from erlangen.errors import ParameterError
from erlangen.paper.theorems import ITEMS, run
from erlangen.paper.theorems.item import Item, Trial, statement
from erlangen.relations import Bipartite, Causal, Full, Neighborhoods, Window
from erlangen.symmetry import symmetry

NAMES = [
    *[f"Definition {k}" for k in range(1, 11)],
    "Proposition 1",
    "attention is a graph layer",
    "Lemma 1",
    *[f"Theorem {k}" for k in range(1, 9)],
    "Corollary 1",
    "Table 1",
    "Table 2",
    *[f"Code B.{k}" for k in range(1, 6)],
    "Row scaling is a gauge",
    "Causal ALiBi is a key-only bias",
    "T5 buckets are Toeplitz",
    "Proposition 1 for kernels",
    "Convolution is attention",
    "Attention that is convolution",
    "One softmax head is no convolution",
    "Convolution and translations",
    "Fano plane",
    "group A4",
    "additive logits on pairs",
]
AS_PRINTED = {
    *[f"Definition {k}" for k in (1, 5, 6, 7, 8, 9)],
    *[f"Theorem {k}" for k in (1, 2, 3, 5)],
    *[f"Code B.{k}" for k in (1, 2, 3)],
    "Row scaling is a gauge",
    "Causal ALiBi is a key-only bias",
    "T5 buckets are Toeplitz",
    "Convolution is attention",
    "Fano plane",
}


def test_every_numbered_statement_is_an_item():
    assert set(ITEMS) == set(NAMES)
    assert set(NAMES) >= AS_PRINTED


@pytest.mark.parametrize("name", NAMES)
def test_item(name):
    [finding] = run(name)
    assert finding.verified, finding
    assert finding.holds_as_printed == (name in AS_PRINTED)
    assert (finding.counterexample is None) == finding.holds_as_printed
    assert "FAILED" not in finding.evidence
    assert any(word in finding.evidence for word in ("symbolic", "exact at n", "numeric"))
    keys = {"item", "paper", "holds_as_printed", "corrected", "evidence", "verified", "counterexample"}
    assert set(finding.as_dict()) == keys


def test_unknown_items_are_refused_with_the_list():
    with pytest.raises(ParameterError, match=r"'Theorem 9'.*Theorem 8"):
        run("Theorem 9")


# ---------------------------------------------------------------- broken on purpose


@pytest.fixture(autouse=True)
def fresh_bindings():
    """Attention keeps bound relations; a relation broken on purpose must not leave any."""
    yield
    clear_cache()


def fails(names):
    """The items that are verified no longer, of those given."""
    return {name for name in names if not run(name)[0].verified}


def broken_attend(change):
    def broken(q, k, v, relation=None, **options):
        return change(q, k, v, Full() if relation is None else relation, options)

    return broken


def filled_with_minus_1e9(q, k, v, relation, options):
    """Dense attention whose masked scores are -1e9, as in the appendix: empty rows become uniform."""
    from erlangen.relations import Batch

    members = relation.members if isinstance(relation, Batch) else [relation]
    n, m = q.shape[-2], k.shape[-2]
    masks = np.stack([(r if isinstance(r, Neighborhoods) else r.on(n, m)).dense() for r in members])
    mask = torch.from_numpy(masks)[:, None] if len(members) > 1 else torch.from_numpy(masks[0])
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    out = weights @ v
    return (out, weights) if options.get("return_weights") else out


ATTEND = {
    "the -1e9 fill": (
        filled_with_minus_1e9,
        {"Definition 9", "Definition 10", "Proposition 1", "Lemma 1", "Theorem 2", "Code B.5"},
    ),
    "Q and K exchanged": (
        lambda q, k, v, r, o: attend(k, q, v, r, **o) if q.shape == k.shape else attend(q, k, v, r, **o),
        {"Definition 5", "Definition 7", "Definition 8", "Definition 9", "Code B.1", "Code B.2", "Code B.4"},
    ),
    "no scaling": (
        lambda q, k, v, r, o: attend(q, k, v, r, scale=1.0, **o),
        {"Definition 5", "Definition 6", "attention is a graph layer", "Code B.1", "Code B.3", "Code B.5"},
    ),
    "every relation full": (
        lambda q, k, v, r, o: attend(q, k, v, Full(), **o),
        {
            "Definition 1",
            "Definition 7",
            "Definition 8",
            "Lemma 1",
            "Theorem 2",
            "Theorem 3",
            "Theorem 4",
            "Theorem 6",
        },
    ),
    "values summed, not averaged": (
        lambda q, k, v, r, o: (
            tuple(x * q.shape[-2] for x in attend(q, k, v, r, **o))
            if o.get("return_weights")
            else attend(q, k, v, r, **o) * q.shape[-2]
        ),
        {"Definition 10", "Proposition 1", "Theorem 6", "Code B.1", "Table 2"},
    ),
}


@pytest.mark.parametrize("name", ATTEND)
def test_a_broken_attention_fails_the_matching_items(monkeypatch, name):
    change, expected = ATTEND[name]
    monkeypatch.setattr(erlangen.nn.paper, "attend", broken_attend(change))
    assert fails(expected) == expected


def window_off_by_one(self, site):
    return Neighborhoods.from_bands(
        site.keys, site.positions - (self.lookback + 1), site.positions + (self.lookahead + 1)
    )


def window_too_short(self, site):
    return Neighborhoods.from_bands(
        site.keys, site.positions - max(self.lookback - 1, 0), site.positions + (self.lookahead + 1)
    )


def transposed_block(self, site):
    low = np.where(site.positions < self.encoder, self.encoder, 0)
    high = np.where(site.positions < self.encoder, site.keys, 0)
    return Neighborhoods.from_bands(site.keys, low, high)


def both_blocks(self, site):
    encoder = site.positions < self.encoder
    low, high = np.where(encoder, self.encoder, 0), np.where(encoder, site.keys, self.encoder)
    return Neighborhoods.from_bands(site.keys, low, high)


def leaking_causal(self, site):
    return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), site.positions + 2)


def strict_causal(self, site):
    return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), site.positions)


BOUND = {
    "a window one too long": (
        Window,
        window_off_by_one,
        {"Definition 8", "Theorem 4", "Theorem 7", "Corollary 1", "Code B.4", "Table 1"},
    ),
    "a window one too short": (
        Window,
        window_too_short,
        {"Definition 8", "Theorem 4", "Theorem 7", "Corollary 1", "Code B.4", "Table 1"},
    ),
    "a transposed bipartite block": (Bipartite, transposed_block, {"Theorem 2", "Table 1"}),
    "both bipartite blocks": (Bipartite, both_blocks, {"Theorem 2", "Theorem 8", "Table 1", "Table 2"}),
    "a causal mask that leaks": (
        Causal,
        leaking_causal,
        {
            "Definition 7",
            "Theorem 3",
            "Theorem 6",
            "Corollary 1",
            "Code B.2",
            "Table 1",
            "Table 2",
        },
    ),
    "a causal mask without its diagonal": (
        Causal,
        strict_causal,
        {"Definition 7", "Theorem 3", "Corollary 1", "Code B.2", "Table 1", "Table 2"},
    ),
    "a full relation that is causal": (
        Full,
        lambda self, site: Causal()._bind(site),
        {"Definition 5", "Definition 6", "Theorem 1", "Theorem 5", "Code B.1", "Table 1", "Table 2"},
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_a_broken_relation_fails_the_matching_items(monkeypatch, name):
    kind, bind, expected = BOUND[name]
    monkeypatch.setattr(kind, "_bind", bind)
    assert fails(expected) == expected


def test_a_wrong_symmetry_fails_the_theorems_on_equivariance(monkeypatch):
    def everything(relation, n=None, **options):
        return symmetry(Full(), n if n is not None else 7, **options)

    monkeypatch.setattr(equivariance_items, "symmetry", everything)
    assert fails({"Theorem 6", "Theorem 7", "Theorem 8"}) == {"Theorem 6", "Theorem 7", "Theorem 8"}


def test_a_graph_layer_without_its_unit_fails(monkeypatch):
    monkeypatch.setitem(erlangen.nn.graph_layer._MONOIDS, "sum", ("sum", 1.0))
    expected = {"Definition 4", "attention is a graph layer"}
    assert fails(expected) == expected


def test_a_ranking_that_contradicts_nothing_fails_table_1(monkeypatch):
    real = ranking_items.hierarchy
    monkeypatch.setattr(ranking_items, "hierarchy", lambda order, n: real("mask", n))
    assert fails({"Table 1"}) == {"Table 1"}


# --------------------------------------------------------------------- the harness


def item(check, printed) -> Item:
    return statement("x", paper="p", corrected="c", printed=printed)(check)


@pytest.mark.parametrize("printed", [True, False])
def test_a_check_that_shows_nothing_verifies_nothing(printed):
    assert not item(lambda trial: None, printed).run().verified


def test_a_claim_said_to_fail_needs_its_counterexample():
    assert not item(lambda trial: trial.exact("fine", True, n=3), False).run().verified
    assert item(lambda trial: trial.refuted("here", True), False).run().verified
    assert not item(lambda trial: trial.refuted("here", False), False).run().verified
    assert not item(lambda trial: trial.refuted("here", True), True).run().verified


def test_a_check_that_stops_verifies_nothing():
    def stops(trial: Trial) -> None:
        trial.exact("fine", True, n=3)
        raise RuntimeError("broken")

    finding = item(stops, True).run()
    assert not finding.verified
    assert not finding.holds_as_printed
    assert "broken" in finding.evidence


@pytest.mark.parametrize(
    ("a", "b", "close", "apart"),
    [([1.0], [1.0], True, False), ([1.0], [1.1], False, True), ([1.0], [1.0 + 1e-6], False, False)],
)
def test_between_close_and_apart_nothing_is_claimed(a, b, close, apart):
    trial = Trial()
    trial.close("close", a, b)
    trial.apart("apart", a, b)
    assert [holds for _, holds in trial.facts] == [close, apart]


def test_numbers_that_are_none_are_not_close():
    trial = Trial()
    trial.close("nan", [float("nan")], [float("nan")])
    assert trial.facts == [("nan", False)]


def test_the_page_of_the_documentation_says_what_the_items_say():
    page = (Path(__file__).parents[2] / "docs" / "theorems.md").read_text(encoding="utf-8")
    for name, each in ITEMS.items():
        told = [text.replace("|", "&#124;") for text in (each.paper, each.corrected)]
        printed = "yes" if each.printed else "no"
        assert f"| {name} | {told[0]} | {printed} | {told[1]} |" in page
