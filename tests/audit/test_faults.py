"""Small models with one deliberate fault, and their correct twins: caught, located, explained; passed."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import Stack, stack, vectors
from erlangen.audit import audit

N = 8
CAUSAL = er.Causal()


def test_the_correct_twin_holds():
    report = audit(stack([[CAUSAL, CAUSAL]] * 2, N), vectors(N), CAUSAL)
    assert report.verdict == "holds"
    assert report.holds
    assert report.counterexamples == []
    assert report.flow is not None
    assert report.flow.future_edges == 0


def test_a_future_leak_in_one_head_of_one_layer():
    leaky = er.FromMask(CAUSAL.on(N).dense() | (np.arange(N * N).reshape(N, N) == 2 * N + 5))
    report = audit(stack([[CAUSAL, CAUSAL], [CAUSAL, leaky]], N), vectors(N), CAUSAL)
    assert report.verdict == "violated"
    first = report.counterexamples[0]
    assert (first.module, first.head, first.query, first.key, first.extra) == (
        "layers.1.attention",
        1,
        2,
        5,
        True,
    )
    assert "extra edge (2, 5)" in str(first)
    assert report.flow is not None
    assert report.flow.counterexample is not None
    assert report.flow.future_edges == 3  # positions 3, 4 and 5, as layer 0 gathered them


@pytest.mark.parametrize(("built", "extra"), [(4, True), (2, False)])
def test_a_window_off_by_one_either_way(built, extra):
    report = audit(stack([[er.Window(3)], [er.Window(built)]], N), vectors(N), er.Window(3), flow=False)
    assert report.verdict == "violated"
    (broken,) = report.counterexamples
    assert broken.module == "layers.1.attention"
    assert broken.extra is extra
    assert broken.measured == f"Window(lookback={built})"
    assert broken.query - broken.key == max(built, 3)


def test_an_inverted_mask():
    inverted = ~CAUSAL | er.Identity()
    report = audit(stack([[inverted]], N), vectors(N), CAUSAL, flow=False)
    assert report.verdict == "violated"
    assert report.calls[0].kernel == CAUSAL.T


@pytest.mark.parametrize("crossed", [False, True])
def test_documents_crossed(crossed):
    relation = CAUSAL & er.Documents([3, 5])
    report = audit(stack([[CAUSAL if crossed else relation]] * 2, N), vectors(N), relation)
    assert report.verdict == ("violated" if crossed else "holds")
    if not crossed:
        assert report.calls[0].kernel == relation
        assert report.flow is not None
        assert report.flow.relation == relation


class Padded(nn.Module):
    """Reads token ids and a mask; `reads_padding` forgets the mask, `only_training` in training mode."""

    def __init__(self, reads_padding: bool = False, only_training: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, 16)
        self.qkv = nn.Linear(16, 48)
        self.reads_padding, self.only_training = reads_padding, only_training

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mask = None if attention_mask is None else attention_mask.bool()[:, None, :]
        if self.reads_padding or (self.only_training and self.training):
            mask = None
        return {"logits": x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)}


def padded_inputs():
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, 5:] = 0
    return {
        "input_ids": torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(0)),
        "attention_mask": mask,
    }


def test_padding_read_is_caught_with_and_without_an_expectation():
    assert audit(Padded(), padded_inputs(), er.Full()).verdict == "holds"
    assert audit(Padded(), padded_inputs()).verdict == "measured"
    report = audit(Padded(reads_padding=True), padded_inputs(), er.Full())
    assert report.verdict == "violated"
    assert (report.counterexamples[0].item, report.counterexamples[0].key) == (1, 5)


def test_padding_that_leaks_outside_attention():
    class Pools(Padded):
        def forward(self, input_ids, attention_mask=None):
            out = super().forward(input_ids, attention_mask)["logits"]
            return out + self.embed(input_ids).mean(1, keepdim=True)

    report = audit(Pools(), padded_inputs(), er.Full())
    assert report.verdict == "violated"
    broken = report.counterexamples[0]
    assert (broken.module, broken.item, broken.key) == ("the whole model", 1, 5)


def test_padding_is_tried_by_itself():
    tokens = padded_inputs()["input_ids"]
    assert audit(Padded(), tokens).verdict == "measured"
    report = audit(Padded(reads_padding=True), tokens)
    assert report.verdict == "contradictory"
    assert any("reads padding key" in text for text in report.contradictions)


def test_a_mask_dropped_in_training_mode_only():
    report = audit(Padded(only_training=True), padded_inputs(), er.Full())
    assert report.verdict == "violated"
    assert report.counterexamples[0].where == "training"
    unexpecting = audit(Padded(only_training=True), padded_inputs())
    assert unexpecting.verdict == "contradictory"
    assert any("in training mode query" in text for text in unexpecting.contradictions)


@pytest.mark.parametrize("top_left", [False, True])
def test_causal_alignment_behind_a_cache(top_left):
    class Decode(nn.Module):
        def forward(self, x, past_key_values):
            keys = torch.cat([past_key_values, x], dim=1)
            if top_left:
                return F.scaled_dot_product_attention(x, keys, keys, is_causal=True)
            n = keys.shape[1]
            mask = torch.ones(x.shape[1], n, dtype=torch.bool).tril(n - x.shape[1])
            return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)

    inputs = {"x": vectors(3), "past_key_values": vectors(5)}
    report = audit(Decode(), inputs, {"": CAUSAL}, flow=False, variants=False)
    assert report.verdict == ("violated" if top_left else "holds")


class Cross(nn.Module):
    def __init__(self, mask: torch.Tensor | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = stack([[er.Full()]], 6).layers[0]
        self.decoder = stack([[CAUSAL]], 6).layers[0]
        self.read = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mask = mask

    def forward(self, src, tgt):
        memory, state = self.encoder(src), self.decoder(tgt)
        return state + self.read(state, memory, memory, attn_mask=self.mask, need_weights=False)[0]


def test_a_missing_cross_attention_mask_though_lengths_are_equal():
    banned = torch.zeros(6, 6, dtype=torch.bool)
    banned[:, 4:] = True
    inputs = (vectors(6), vectors(6) + 1)
    expect = {"encoder*": er.Full(), "decoder*": CAUSAL, "read": er.Padding(4)}
    good = audit(Cross(banned), inputs, expect)
    assert [call.kind for call in good.calls] == ["self", "self", "cross"]
    assert good.verdict == "holds"
    assert audit(Cross(None), inputs, expect).counterexamples[0].module == "read"


class Convolved(nn.Module):
    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.stack = stack([[CAUSAL]], N)
        self.conv = nn.Conv1d(16, 16, 3)
        self.pad = (1, 1) if ahead else (2, 0)

    def forward(self, x):
        return self.stack(self.conv(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2))


def test_a_leak_through_a_convolution_is_outside_attention():
    assert audit(Convolved(False), vectors(N), CAUSAL).verdict == "holds"
    report = audit(Convolved(True), vectors(N), CAUSAL)
    assert report.verdict == "violated"
    assert report.calls[0].counterexample is None
    assert report.counterexamples[0].module == "the whole model"
    assert report.flow is not None
    assert report.flow.outside_attention is not None
    edges = report.flow.outside_attention[0].edges()
    assert (edges[:, 1] - edges[:, 0] == 1).all()
    assert any("outside attention" in text for text in report.all_warnings())


def test_a_leak_between_the_sequences_of_a_batch():
    class Centered(nn.Module):
        def __init__(self, over_batch: bool) -> None:
            super().__init__()
            self.stack, self.over_batch = stack([[CAUSAL]], N), over_batch

        def forward(self, x):
            return self.stack(x - x.mean(0, keepdim=True) if self.over_batch else x)

    assert audit(Centered(False), vectors(N), CAUSAL).verdict == "holds"
    report = audit(Centered(True), vectors(N), CAUSAL)
    assert report.verdict == "violated"
    assert any("read each other" in text for text in report.contradictions)


def test_batch_statistics_leak_in_training_mode_only():
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack, self.norm = stack([[CAUSAL]], N), nn.BatchNorm1d(16)

        def forward(self, x):
            return self.norm(self.stack(x).transpose(1, 2)).transpose(1, 2)

    model = Normed()
    report = audit(model, vectors(N), CAUSAL)
    assert report.verdict == "violated"
    (broken,) = {one.where for one in report.findings if one.kind == "edge"}
    assert broken == "training"
    assert report.findings[0].origin == "norm (BatchNorm1d)"
    assert int(model.norm.num_batches_tracked) == 0
    assert report.unchanged


def test_every_call_of_a_wrong_model_is_named_once():
    report = audit(stack([[er.Full()]] * 3, N), vectors(N), CAUSAL, flow=False)
    assert [one.module for one in report.counterexamples] == [f"layers.{i}.attention" for i in range(3)]


def test_a_stack_is_what_the_tests_say():
    model = Stack([[np.eye(4, dtype=bool)]])
    x = vectors(4)
    moved = x.clone()
    moved[:, 1] += 1
    assert torch.equal(model(x)[:, 0], model(moved)[:, 0])
