"""Inputs and outputs of unusual layouts, several beside one another, and their masks: faulty and right."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, Inputs, audit, compare
from erlangen.testing import assert_causal, assert_no_padding_leak

pytestmark = pytest.mark.filterwarnings("ignore::erlangen.testing.relations.AuditWarning")
CAUSAL = AtMost(er.Causal())


def vectors(*shape, seed=1):
    return torch.randn(*(shape or (2, 12, 16)), generator=torch.Generator().manual_seed(seed))


def tokens(low=3, n=12):
    return torch.randint(low, 20, (2, n), generator=torch.Generator().manual_seed(2))


ONES = torch.ones(2, 12, dtype=torch.long)
PADDED = ONES.clone()
PADDED[1, 8:] = 0


class Parts(nn.Module):
    """Parts of small models, and a forward pass that is given."""

    def __init__(self, forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.embed, self.conv = nn.Linear(16, 16), nn.Embedding(20, 16), nn.Conv1d(16, 16, 3)
        self.run = forward

    def forward(self, *args, **kwargs):
        return self.run(self, *args, **kwargs)

    def ahead(self, x):
        return self.conv(F.pad(x.mT, (1, 1))).mT

    def behind(self, x):
        return self.conv(F.pad(x.mT, (2, 0))).mT


def attend(x, mask):
    return x + F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


FAULTY = {
    "an action one step too early": (
        lambda m, obs, actions: (m.linear(obs) + actions.roll(-1, 1)).cumsum(1),
        {"obs": vectors(), "actions": vectors(seed=3)},
    ),
    "the mean of another input of this length": (
        lambda m, obs, actions: m.linear(obs).cumsum(1) + actions.mean(1, keepdim=True),
        {"obs": vectors(), "actions": vectors(seed=3)},
    ),
    "numbers over time, read backwards": (
        lambda m, x: x.flip(1).cumsum(1).flip(1),
        {"x": vectors(2, 12)},
    ),
    "a prefix row before the positions": (
        lambda m, x: m.ahead(F.pad(x, (0, 0, 1, 0))).cumsum(1),
        {"x": vectors()},
    ),
    "inside a distribution beside a tensor": (
        lambda m, x: (torch.distributions.Normal(m.ahead(x), 1.0, validate_args=False), m.behind(x)[..., 0]),
        {"x": vectors()},
    ),
    "a complex output beside a real one": (
        lambda m, x: {"hidden": m.behind(x), "spectrum": torch.fft.fft(x, dim=1)},
        {"x": vectors()},
    ),
    "items mixed beside a banned logit": (
        lambda m, ids: torch.cat(
            [(h := m.embed(ids).cumsum(1)) + h.mean(0, keepdim=True), torch.full((*ids.shape, 1), -1e9)], -1
        ),
        {"ids": tokens()},
    ),
    "the last rows only": (lambda m, ids: m.ahead(m.embed(ids))[:, -4:].cumsum(1), {"ids": tokens()}),
    "channels before time": (lambda m, x: m.conv(F.pad(x, (1, 1))), {"x": vectors(2, 16, 12)}),
    "logits with time last": (lambda m, ids: m.ahead(m.embed(ids)).mT, {"ids": tokens()}),
}
CORRECT = {
    "numbers over time": (lambda m, x: x.cumsum(1), {"x": vectors(2, 12)}),
    "an action in time": (
        lambda m, obs, actions: (m.linear(obs) + actions).cumsum(1),
        {"obs": vectors(), "actions": vectors(seed=3)},
    ),
    "a distribution": (
        lambda m, x: (torch.distributions.Normal(m.behind(x), 1.0, validate_args=False), m.behind(x)[..., 0]),
        {"x": vectors()},
    ),
    "the last rows only": (lambda m, ids: m.embed(ids).cumsum(1)[:, -4:], {"ids": tokens()}),
    "channels before time": (lambda m, x: m.conv(F.pad(x, (2, 0))), {"x": vectors(2, 16, 12)}),
    "logits with time last": (lambda m, ids: m.embed(ids).cumsum(1).mT, {"ids": tokens()}),
    "writes to its input": (lambda m, x: x.add_(1).cumsum(1), {"x": vectors()}),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_leak_never_holds(name):
    forward, inputs = FAULTY[name]
    assert audit(Parts(forward), inputs, CAUSAL).verdict != "holds"
    with pytest.raises(AssertionError):
        assert_causal(Parts(forward), inputs)


@pytest.mark.parametrize("name", CORRECT)
def test_a_right_model_holds(name):
    forward, inputs = CORRECT[name]
    before = {key: value.clone() for key, value in inputs.items()}
    report = audit(Parts(forward), inputs, CAUSAL)
    assert report.verdict == "holds", str(report)
    assert all(torch.equal(value, before[key]) for key, value in inputs.items())


def test_labels_in_pooled_logits_are_read():
    def run(m, input_ids, labels):
        logits = attend(m.embed(input_ids), None).mean(1)
        logits = logits + m.embed(labels) if m.reads else logits
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    inputs = {"input_ids": tokens(), "labels": torch.tensor([1, 3])}
    for reads in (True, False):
        model = Parts(run)
        model.reads = reads
        report = audit(model, inputs, er.Full())
        assert report.verdict == ("violated" if reads else "holds"), str(report)


@pytest.mark.parametrize("given", ["lengths", "mask of keys"])
@pytest.mark.parametrize("obeys", [True, False])
def test_padding_told_by_lengths_and_by_masks_of_four_axes(given, obeys):
    def run(m, x, lengths=None, mask=None):
        if lengths is not None:
            mask = (torch.arange(x.shape[1])[None] < lengths[:, None])[:, None, None, :]
        return attend(x, mask[:, 0] if obeys else None)

    inputs = {"x": vectors(), "lengths": torch.tensor([12, 8])}
    if given == "mask of keys":
        inputs = {"x": vectors(), "mask": PADDED.bool()[:, None, None, :]}
    assert audit(Parts(run), inputs, er.Full()).verdict == ("holds" if obeys else "violated")
    if obeys:
        assert_no_padding_leak(Parts(run), inputs)


def test_batch_statistics_in_training_are_said_and_no_fault():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(16)

        def forward(self, x):
            return attend(self.norm(x.mT).mT, None)

    report = audit(Normed(), vectors(), er.Full())
    assert report.verdict == "holds"
    assert any("batch statistics" in text for text in report.all_warnings())


def test_special_tokens_with_a_loss():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        num_key_value_heads=2, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    ids = torch.randint(5, 60, (2, 12))
    ids[:, 0] = 1
    report = audit(transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}, er.Causal())
    assert report.verdict == "holds", str(report)


def test_another_sequence_can_be_left_out():
    model = Parts(lambda m, obs, memory: m.linear(obs).cumsum(1) + memory.mean(1, keepdim=True))
    inputs = {"obs": vectors(), "memory": vectors(seed=3)}
    assert audit(model, inputs, CAUSAL).verdict == "undecided"
    assert audit(model, Inputs((), inputs, content=["obs"]), CAUSAL).verdict == "holds"


def test_one_position_and_wrong_positions():
    model = Parts(lambda m, x: x.cumsum(1))
    assert audit(model, vectors(2, 1, 16), CAUSAL).verdict == "undecided"
    with pytest.raises(er.errors.ParameterError, match=r"must lie in 0\.\.11, got 12"):
        audit(model, vectors(), CAUSAL, positions=[12])
    with pytest.raises(er.errors.ParameterError, match="the class Linear"):
        audit(nn.Linear, vectors())


def test_outputs_beside_a_banned_logit_are_compared_when_decoding():
    def run(m, ids, start=0):
        h = m.embed(ids) + m.embed(torch.arange(start, start + ids.shape[1]))
        banned = torch.full_like(h[..., :1], -1e9)
        return torch.cat([h, banned], -1), start + ids.shape[1] + 1

    result = compare(
        Parts(run), tokens(n=8), decode=lambda model, part, state: model(part.args[0], state or 0)
    )
    assert not result.same
