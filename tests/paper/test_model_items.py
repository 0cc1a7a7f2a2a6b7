"""The items on models: each is verified on the right models, and refuses a wrong model or a wrong claim."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import erlangen as er
import erlangen.models.bahdanau
import erlangen.models.s4
import erlangen.paper.figures_1_to_4
import erlangen.paper.theorems.model_items as items
import erlangen.show.figures
from erlangen.models import BERT, GPT, ViT
from erlangen.paper.table2.architectures import DECODER, TABLE2, VOCABULARY, N, unlimiformer
from erlangen.paper.table2.measured import Implementation
from erlangen.paper.table2.measured_once import Rows
from erlangen.paper.theorems import ITEMS
from erlangen.paper.theorems.model_items import LABEL
from paper_breakers import ATTEND, BOUND

MODELS = {
    "Table 2", "Section 3.2: S4", "Figure 5", "Footnote 4", *(f"Appendix A.{k}" for k in range(1, 6)),
}  # fmt: skip
OWN = tuple(replace(row, implementations=row.implementations[-1:]) for row in TABLE2)
"""The rows with erlangen's implementations alone, which are quick to build."""


@pytest.fixture(scope="module")
def own():
    rows = Rows(OWN)
    rows.outcomes()
    return rows


def with_row(own, model, **changes):
    """The rows with one of them changed; the others are not measured again."""
    rows = Rows(tuple(replace(row, **changes) if row.model == model else row for row in OWN))
    rows._outcomes = {name: outcome for name, outcome in own._outcomes.items() if name != model}
    return rows


def built_by(build):
    return (Implementation("a wrong one", "torch", build),)


def refused(rows, names=MODELS):
    """The items on models that are not verified on these rows."""
    return {name for name in names if not ITEMS[name].run(rows).verified}


def test_the_items_are_quiet_on_the_right_models(own):
    assert refused(own) == set()


# ------------------------------------------------------------------------------------- wrong models


def tokens(length=N):
    return torch.randint(5, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(0))


def causal_bert():
    torch.manual_seed(0)
    config = BERT.Config(VOCABULARY, context=N, layers=2, heads=4, width=32, relation=er.Causal())
    return BERT(config).eval(), (tokens(),)


def one_head_bert():
    torch.manual_seed(0)
    return BERT(BERT.Config(VOCABULARY, context=N, layers=2, heads=1, width=32)).eval(), (tokens(),)


class HidesLabels(torch.nn.Module):
    """A BERT that takes the labels of masked tokens out of its attention matrix."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = er.Attention(32, 4)
        self.words = torch.nn.Embedding(VOCABULARY, 32)

    def forward(self, ids):
        keys = [j for j in range(ids.shape[1]) if ids[0, j] != LABEL]
        return self.layer(self.words(ids), relation=er.Global(keys=keys))


def window_gpt():
    torch.manual_seed(0)
    config = GPT.Config(VOCABULARY, context=N, layers=2, heads=4, width=32, relation=er.Window(3))
    return GPT(config).eval(), (tokens(),)


def strided_vit():
    torch.manual_seed(0)
    config = ViT.Config(
        image_size=32, patch_size=8, channels=3, layers=2, heads=4, width=32, classes=10,
        relation=er.Window(lookback=3),
    )  # fmt: skip
    return ViT(config).eval(), (torch.randn(2, 3, 32, 32),)


class IgnoresGraph(torch.nn.Module):
    """Attention over one sparse relation, whatever graph it is given."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = er.Attention(8, 2, er.Random(3, seed=0))

    def forward(self, x, graph):
        return self.layer(x[None])[0]


def sparse_gat():
    return IgnoresGraph().eval(), OWN[0].implementations[0].build()[1]


WRONG = {
    "a causal BERT": ("BERT", causal_bert, {"Table 2", "Appendix A.1", "Footnote 4", "Figure 5"}),
    "a BERT with one head": ("BERT", one_head_bert, {"Appendix A.1"}),
    "a BERT that masks its attention": (
        "BERT", lambda: (HidesLabels().eval(), (tokens(),)), {"Footnote 4"},
    ),
    "a GPT with a window": ("GPT", window_gpt, {"Table 2", "Appendix A.2", "Figure 5"}),
    "a T5 without a decoder": (
        "T5", OWN[1].implementations[0].build, {"Table 2", "Appendix A.3", "Figure 5"},
    ),
    "an Unlimiformer that reads everything": (
        "Unlimiformer", OWN[5].implementations[0].build, {"Table 2", "Appendix A.4"},
    ),
    "an Unlimiformer with k beyond the text": (
        "Unlimiformer", lambda: unlimiformer(N + DECODER), {"Table 2", "Appendix A.4"},
    ),
    "a ViT with a window": ("ViT", strided_vit, {"Table 2", "Appendix A.5", "Figure 5"}),
    "a GAT that ignores its graph": ("GAT", sparse_gat, {"Table 2"}),
    "a model that cannot be built": ("ViT", None, {"Table 2", "Appendix A.5", "Figure 5"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_refused_by_the_items_that_speak_of_it(own, name):
    model, build, expected = WRONG[name]
    missing = (Implementation("not there", "a_library_nobody_has", lambda: (torch.nn.Identity(), ())),)
    rows = with_row(own, model, implementations=missing if build is None else built_by(build))
    drawn = model in ("BERT", "GPT", "T5", "ViT")
    assert refused(rows, MODELS if drawn else MODELS - {"Figure 5"}) == expected


@pytest.mark.parametrize(
    ("model", "claimed"),
    [
        ("ViT", "self-attention"),  # right, and so not the claim that the item says is wrong
        ("BERT", "strided"),
        ("GPT", "strided"),
        ("GAT", "sparse"),
        ("Unlimiformer", "graph-based"),
        ("T5", "masked"),
    ],
)
def test_a_wrong_claim_is_refused_by_table_2(own, model, claimed):
    assert refused(with_row(own, model, claimed=claimed), {"Table 2", "Appendix A.1"}) == {"Table 2"}


def test_a_positive_kernel_is_not_s4(monkeypatch, own):
    right = erlangen.models.s4.S4Layer.kernel
    monkeypatch.setattr(erlangen.models.s4.S4Layer, "kernel", lambda self, n: right(self, n).abs())
    assert refused(own, MODELS - {"Figure 5"}) == {"Section 3.2: S4"}


def test_a_short_kernel_is_not_s4(monkeypatch, own):
    right = erlangen.models.s4.S4Layer.kernel

    def short(self, n):
        return right(self, n) * (torch.arange(n) < 4)

    monkeypatch.setattr(erlangen.models.s4.S4Layer, "kernel", short)
    assert refused(own, MODELS - {"Figure 5"}) == {"Section 3.2: S4"}


def test_a_bahdanau_that_reads_one_state_is_refused(monkeypatch, own):
    monkeypatch.setattr(erlangen.models.bahdanau, "RELATION", er.Window(0))
    assert refused(own, MODELS - {"Figure 5"}) == {"Appendix A.3"}


def test_figure_5_shows_two_keys(monkeypatch, own):
    monkeypatch.setattr(items, "unlimiformer", lambda k: unlimiformer(3))
    assert refused(own) == {"Figure 5"}


def test_rows_are_measured_once_and_told(own):
    heard = []
    rows = Rows(OWN[1:3], heard.append)
    assert [rows.outcome("GPT") is rows.outcomes()[1] for _ in range(2)] == [True, True]
    assert heard == ["erlangen GPT", "erlangen BERT"]


# ------------------------------------------------------------------------------------------ figures


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        (1, er.Full() - er.Identity()),
        (2, er.Bipartite(3, 4).T),
        (2, er.Bipartite(4, 3)),
        (3, er.Causal() - er.Identity()),
        (4, er.Window(lookback=3)),
        (4, er.Window(2, 1)),
    ],
)
def test_a_figure_of_another_relation_is_refused(monkeypatch, number, wrong):
    figures = list(erlangen.paper.figures_1_to_4.FIGURES)
    figures[number - 1] = replace(figures[number - 1], relation=wrong)
    monkeypatch.setattr(erlangen.paper.figures_1_to_4, "FIGURES", tuple(figures))
    names = [f"Figure {k}" for k in range(1, 5)]
    assert [name for name in names if not ITEMS[name].run().verified] == [f"Figure {number}"]


def test_a_picture_that_is_transposed_is_refused(monkeypatch):
    right = erlangen.show.figures._cells
    monkeypatch.setattr(erlangen.show.figures, "_cells", lambda axes, bound: right(axes, bound.T))
    names = {f"Figure {k}" for k in range(1, 5)}
    assert {name for name in names if not ITEMS[name].run().verified} == names - {"Figure 1"}


# ------------------------------------------------------------------------------------- completeness


def test_every_item_of_the_paper_is_seen_to_reject():
    """Each is named by a test that breaks what it speaks of; what is beyond the paper has files of its "
    "own."""
    broken = [names for _, names in ATTEND.values()] + [names for *_, names in BOUND.values()]
    broken += [names for *_, names in WRONG.values()]
    broken += [{"Theorem 8", "Definition 4", "Section 3.2: S4", "Figure 1"}]
    own_files = {"Convolution is attention", "Convolution and translations"}
    assert set().union(*broken) >= {name for name, each in ITEMS.items() if not each.beyond} - own_files
