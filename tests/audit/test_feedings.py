"""Every way of feeding a model, by the registry: each finds a model that is wrong under it alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit, feedings
from erlangen.audit.feeding import FEEDINGS, Way, register
from erlangen.audit.inputs import Inputs
from erlangen.errors import ParameterError

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"
N, EOS = 12, 23
IDS = torch.randint(2, 20, (2, N), generator=torch.Generator().manual_seed(0))

Fault = Callable[[nn.Module, torch.Tensor], bool]


class Decoder(nn.Module):
    """One causal layer; where there is a fault every row reads the next one besides."""

    def __init__(self, fault: Fault | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault, self.calls, self.window, self.eos_token_id = fault, 0, 16, EOS
        self.embed, self.qkv = nn.Embedding(24, 8), nn.Linear(8, 24)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        y = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.calls += 1
        if self.fault is not None and self.fault(self, ids):
            return y + 0.5 * x.roll(-1, 1)
        return y + self.gate * (x.roll(-1, 1) if self.fault is gated else x)


class Masked(nn.Module):
    """One layer that reads everything but padding; where there is a fault the mask of a side is dropped."""

    def __init__(self, dropped: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.dropped, self.embed, self.qkv = dropped, nn.Embedding(24, 8), nn.Linear(8, 24)

    def forward(self, ids, attention_mask):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        side = "left" if bool((attention_mask[:, 0] == 0).any()) else "right"
        mask = attention_mask.bool()[:, None, :].expand(-1, ids.shape[1], -1)
        mask = torch.ones_like(mask) if side in self.dropped else mask
        return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def gated(model: nn.Module, ids: torch.Tensor) -> bool:
    return False


FAULTS: dict[str, Fault] = {
    "shorter": lambda model, ids: ids.shape[1] == 2 * N // 3,
    "training": lambda model, ids: model.training,
    "other content": lambda model, ids: ids.shape == IDS.shape and bool((ids != IDS).float().mean() > 0.7),
    "special tokens": lambda model, ids: bool((ids == EOS).any()),
    "alone": lambda model, ids: len(ids) == 1,
    "with gradients": lambda model, ids: torch.is_grad_enabled() and not model.training,
    "autocast": lambda model, ids: torch.is_autocast_enabled("cpu"),
    "other sizes": lambda model, ids: len(ids) == 3,
    "zeros filled": gated,
    "second call": lambda model, ids: model.calls > 1,
    "longer": lambda model, ids: ids.shape[1] > 2 * 16,
}
"""For every feeding of a decoder: when the model is wrong."""
PADDED = {"padded": "right or left", "padded right": "right", "padded left": "left"}
"""For every feeding of a masked model: the sides on which it drops its mask."""


def models(name: str) -> tuple[nn.Module, nn.Module, tuple, er.Relation]:
    """(faulty, correct, inputs, what is expected)."""
    if name in PADDED:
        return Masked(PADDED[name]), Masked(""), (IDS, torch.ones_like(IDS)), er.Full()
    return Decoder(FAULTS[name]), Decoder(None), (IDS,), er.Causal()


def complete(name: str, faulty: nn.Module, correct: nn.Module, inputs: tuple, expect: er.Relation) -> None:
    """A feeding is tried, finds what is wrong under it alone, and accuses nothing that is right."""
    assert audit(faulty.eval(), inputs, expect, variants=False).verdict == "holds"
    report = audit(faulty, inputs, expect, feedings=[name])
    assert report.verdict == "violated", report
    assert all(name.split()[0] in one.where for one in report.findings), report
    assert {one.where for one in report.findings} <= set(report.tried["feedings"]) - {"given"}
    right = audit(correct.eval(), inputs, expect, feedings=[name])
    assert right.verdict == "holds", right
    assert len(right.tried["feedings"]) > 1
    assert name not in right.not_tried


def test_every_feeding_has_a_model_that_is_wrong_under_it():
    assert {*FAULTS, *PADDED} == set(FEEDINGS)


@pytest.mark.parametrize("name", sorted(FEEDINGS))
def test_every_feeding_finds_what_is_wrong_under_it_alone(name):
    complete(name, *models(name))


def test_every_file_registers_a_feeding_that_the_docs_name():
    files = {path.stem for path in Path(feedings.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == {type(way).__module__.rpartition(".")[2] for way in FEEDINGS.values()}
    for way in FEEDINGS.values():
        assert f'"{way.name}"' in (audit.__doc__ or "")
        assert f"`{way.name}`" in DOCS.read_text() or f'"{way.name}"' in DOCS.read_text()
        assert not way.half_of or way.half_of in FEEDINGS


def test_halves_come_last_and_only_where_asked_for():
    names = list(FEEDINGS)
    assert names[-2:] == ["padded right", "padded left"]
    report = audit(Masked(""), (IDS, torch.ones_like(IDS)), er.Full())
    assert not set(names[-2:]) & set(report.not_tried)
    assert {"padded", "padded left"} <= set(report.tried["feedings"])


TOY = '''
from erlangen.audit.feeding import Way, register


@register
class Twice(Way):
    """The given batch, and every sequence of it once more."""

    name = "twice"

    def make(self, given):
        axis = given.reading.contents[0].batch_axis
        if axis is not None and not given.reading.masks:
            inputs = given.inputs.map(lambda tensor: tensor.repeat_interleave(2, axis), "twice")
            yield given.feeding("twice", inputs, other_items=True)
'''


@contextmanager
def toy(folder: Path) -> Iterator[None]:
    """One more feeding, in a file of its own."""
    path = folder / "twice.py"
    path.write_text(TOY)
    spec = importlib.util.spec_from_file_location("twice", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    try:
        yield
    finally:
        del FEEDINGS["twice"]


def test_a_feeding_of_ones_own_is_one_file(tmp_path):
    faulty, correct = Decoder(lambda model, ids: len(ids) == 4), Decoder(None)
    with toy(tmp_path):
        complete("twice", faulty, correct, (IDS,), er.Causal())
        report = audit(faulty, (IDS,), er.Causal())  # among all others, too
        assert report.verdict == "violated"
        assert {one.where for one in report.findings} == {"twice"}
        assert "violated: the whole model (twice)" in str(report)
        masked = audit(Masked(""), (IDS, torch.ones_like(IDS)), er.Full(), feedings=["twice"])
        assert masked.not_tried["twice"] == "the model's inputs do not offer it"
        with pytest.raises(ParameterError, match="there is a feeding 'twice' already: Twice"):
            register(type(FEEDINGS["twice"]))
        short = audit(correct, (IDS,), er.Causal(), feedings=["alone"])
        assert short.not_tried["twice"] == "not asked for"
    with pytest.raises(ParameterError, match=r"knows 'shorter', .*'padded left'; got 'twice'"):
        audit(correct, (IDS,), er.Causal(), feedings=["twice"])


def test_a_feeding_that_fails_leaves_the_verdict_open(tmp_path, monkeypatch):
    def make(self, given):
        yield given.reading.contnts

    with toy(tmp_path):
        assert audit(Decoder(None), (IDS,), er.Causal(), feedings=["twice"]).verdict == "holds"
        monkeypatch.setattr(type(FEEDINGS["twice"]), "make", make)
        report = audit(Decoder(None), (IDS,), er.Causal(), feedings=["twice"])
        assert report.verdict == "undecided"
        assert [str(one) for one in report.open] == [
            "the feeding 'twice' (twice): it could not be made (AttributeError: 'Reading' object has no "
            "attribute 'contnts')"
        ]


@pytest.mark.parametrize("method", sorted(Way.__abstractmethods__))
def test_a_feeding_that_lacks_a_method_is_refused_at_once(method):
    methods = {name: lambda self, *_: iter(()) for name in Way.__abstractmethods__ - {method}}
    with pytest.raises(TypeError, match=method):
        register(type("Half", (Way,), {"name": "half", **methods}))
    assert "half" not in FEEDINGS


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"name": None}, "needs a name of its own, got None"),
        ({"name": "given"}, "needs a name of its own, got 'given'"),
        ({"name": "half", "half_of": "half"}, "half of 'half', which is no feeding"),
        ({"name": "half", "half_of": "nothing"}, "half of 'nothing', which is no feeding"),
    ],
)
def test_a_feeding_of_wrong_facts_is_refused_at_once(facts, said):
    with pytest.raises(ParameterError, match=said):
        register(type("Half", (Way,), {"make": lambda self, given: iter(()), **facts}))
    assert "half" not in FEEDINGS


@pytest.mark.parametrize("label", ["padded left", "training", "mine"])
def test_inputs_are_told_from_feedings_whatever_their_labels(label):
    """Found under the inputs of this label, and under no feeding that has it as its name."""
    second, third = IDS.flip(1), IDS.roll(1, 1)
    inputs = [Inputs.of(IDS), *(replace(Inputs.of(ids), label=label) for ids in (second, third))]
    faulty = Decoder(lambda model, ids: bool((ids[:1, :1] == second[:1, :1]).all()))
    report = audit(faulty, inputs, er.Causal(), feedings=["padded", "training"])
    labels = [trial.label for trial in report.trials]
    assert len(set(labels)) == len(labels)
    assert report.verdict == "violated"
    assert f"{label} (input 1)" in {one.where for one in report.findings}
