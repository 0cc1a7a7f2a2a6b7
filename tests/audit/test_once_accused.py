"""Correct models that were accused, each with a faulty twin that is found.

Rows on another axis, numbers that PyTorch keeps in another type, inputs that no attention reads, and padding
that is padding in one item only.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

D, N = 16, 12
CAUSAL = er.Causal()


def seeded(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tokens(*shape, seed=1):
    return torch.randint(3, 50, shape, generator=torch.Generator().manual_seed(seed))


def ahead(x, by=1):
    return F.pad(x, (0, 0, 0, by))[:, by:]


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x, keep=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        if keep is None:
            return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        mask = keep[:, None, :].bool() | torch.eye(x.shape[1], dtype=torch.bool)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


class Made(nn.Module):
    """A layer, other modules, and a rule that is given whether it is faulty."""

    def __init__(self, fault, rule, **parts):
        super().__init__()
        self.layer, self.embed, self.head = Layer(), nn.Embedding(50, D), nn.Linear(D, 50)
        self.fault, self.rule = fault, rule
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args):
        return self.rule(self, *args)


def twins(rule, inputs, expect: er.Relation = CAUSAL, feedings=None, **parts):
    """The faulty model is found, and its twin holds."""
    reports = []
    for fault in (True, False):
        torch.manual_seed(0)
        made = {name: part() for name, part in parts.items()}
        reports.append(audit(Made(fault, rule, **made).eval(), inputs, expect, feedings=feedings))
    faulty, correct = reports
    assert faulty.verdict == "violated", faulty
    assert correct.verdict == "holds", correct
    return faulty


# ------------------------------------------------------------------------- where rows are


def test_rows_of_a_convolution_are_found_again_in_its_copies():
    def rule(self, x):
        return self.conv(F.pad(x, (1, 1) if self.fault else (2, 0)))

    for channels in (1, 4):
        twins(rule, seeded(2, channels, 24), er.Window(2), conv=lambda c=channels: nn.Conv1d(c, 8, 3))
    report = audit(nn.Conv1d(4, 4, 3, padding=1), seeded(2, 4, 24), CAUSAL)
    assert report.verdict == "violated"
    assert (report.findings[0].query, report.findings[0].key) == (0, 1)


def test_items_may_come_last_where_one_axis_holds_them_and_rows():
    def rule(self, ids):
        x = self.layer(self.embed(ids))
        x = x + 0.5 * ahead(x) if self.fault else x
        return self.head(x).transpose(0, 1).reshape(-1, 50)

    for batch in (2, 3):
        found = twins(rule, tokens(batch, N))
        assert all(edge.key > edge.query for edge in found.findings if edge.kind == "edge")


def test_rows_of_several_inputs_one_behind_the_other():
    def rule(self, features, ids):
        x = self.layer(torch.cat([self.project(features), self.embed(ids)], 1))
        return self.head(x + ahead(x) if self.fault else x)

    for features, length in ((5, 12), (4, 12), (3, 9)):
        inputs = {"features": seeded(2, features, 8), "ids": tokens(2, length)}
        torch.manual_seed(0)
        model = Made(False, rule, project=nn.Linear(8, D)).eval()
        assert audit(model, tuple(inputs.values()), CAUSAL).verdict == "holds"
        model.fault = True
        assert audit(model, tuple(inputs.values()), CAUSAL).verdict == "violated"


# ------------------------------------------------------------------------- other types


def test_convolutions_in_complex_numbers_are_run_in_double_as_such():
    def rule(self, x):
        n = x.shape[1]
        size = n if self.fault else 2 * n  # without padding it is circular
        product = torch.fft.fft(x.to(torch.complex64), size, dim=1) * torch.fft.fft(self.k[:n], size, dim=0)
        return torch.fft.ifft(product, size, dim=1)[:, :n].real

    def cast(self, x):
        x = x.cfloat()
        n = x.shape[1]
        size = n if self.fault else 2 * n
        return torch.fft.ifft(torch.fft.fft(x, size, dim=1) * torch.fft.fft(self.k[:n], size, dim=0), dim=1)[
            :, :n
        ].real

    for one in (rule, cast):
        twins(one, seeded(2, N, D), k=lambda: nn.Parameter(0.1 * seeded(700, D, dtype=torch.complex64)))


def test_what_fades_in_bfloat16_is_not_missing():
    def rule(self, wave):
        x = self.conv(F.pad(wave[:, None], (2, 0))).mT
        if self.fault and torch.is_autocast_enabled("cpu"):
            return self.gru(x[:, 12:])[0].repeat(1, 2, 1)  # the first half is thrown away
        return self.gru(x)[0]

    twins(
        rule,
        seeded(2, 24),
        conv=lambda: nn.Conv1d(1, D, 3),
        gru=lambda: nn.GRU(D, D, batch_first=True),
    )


# ------------------------------------------------------------------ inputs beside attention


def test_nothing_is_missing_of_an_input_that_joins_behind_attention():
    def rule(self, x, skip):
        skip = skip + 0.3 * ahead(skip) if self.fault else skip
        return self.join(torch.cat([self.layer(x), skip], -1))

    found = twins(rule, (seeded(2, N, D), seeded(2, N, D, seed=4)), join=lambda: nn.Linear(2 * D, D))
    assert found.findings[0].extra


def test_nothing_is_missing_of_it_where_attention_is_hidden_either():
    def rule(self, x, skip):
        x = torch.cumsum(x, 1)
        return x + (skip + 0.3 * ahead(skip) if self.fault else skip)

    twins(rule, (seeded(2, N, D), seeded(2, N, D, seed=4)))


def test_attention_that_is_thrown_away_is_still_missed():
    def rule(self, x, skip):
        return (x + 0 * self.layer(x) if self.fault else self.layer(x)) + skip

    found = twins(rule, (seeded(2, N, D), seeded(2, N, D, seed=4)))
    assert not found.findings[0].extra


# ------------------------------------------------------------------------------ padding


def test_padding_of_one_item_is_changed_in_that_item_alone():
    def rule(self, ids, keep):
        x = self.layer(self.embed(ids), keep)
        if self.fault:
            return self.norm(x.flatten(0, 1)).view_as(x)
        result, real = torch.zeros_like(x), keep.bool()
        result[real] = self.norm(x[real])
        return result

    keep = torch.ones(2, N, dtype=torch.long)
    keep[1, -3:] = 0
    found = twins(rule, (tokens(2, N), keep), er.Full(), norm=lambda: nn.BatchNorm1d(D))
    assert any(one.kind == "padding" and one.item == 1 for one in found.findings)


# ------------------------------------------------------------------------------- states


def test_states_of_layers_have_their_batch_second():
    def rule(self, x, state):
        h = self.gru(x, state)[0]
        return h + 0.1 * h.roll(1, 0) if self.fault else h

    for layers, batch in ((2, 2), (3, 2), (2, 3)):
        inputs = seeded(batch, N, D), seeded(layers, batch, D, seed=2)
        found = twins(rule, inputs, gru=lambda k=layers: nn.GRU(D, D, k, batch_first=True))
        assert any(one.kind == "batch" for one in found.findings)


def test_a_state_that_another_sequence_is_given_is_found():
    def rule(self, x, h, c):
        if self.fault:
            h = h.roll(1, 1)
        return self.lstm(x, (h, c))[0]

    inputs = seeded(2, N, D), seeded(2, 2, D, seed=2), seeded(2, 2, D, seed=3)
    found = twins(rule, inputs, lstm=lambda: nn.LSTM(D, D, 2, batch_first=True))
    assert any(one.kind == "batch" and one.content == "argument 1" for one in found.findings)


# ------------------------------------------------------------------------------ few values

ROUNDED = {
    "codes": lambda self, h: self.codes((h @ self.codes.weight.T).argmax(-1)),
    "rounded": lambda self, h: torch.round(torch.tanh(h) * 2) / 2,
    "spikes": lambda self, h: (h > 0).float(),
    "decisions": lambda self, h: F.one_hot(h.argmax(-1), D).float(),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_numbers_lack_nothing_that_they_are_made_of(name):
    def rule(self, x):
        h = self.layer(x if x.is_floating_point() else self.embed(x))
        return ROUNDED[name](self, h + ahead(h) if self.fault else h)

    for inputs in (seeded(2, N, D), tokens(2, N)):
        twins(rule, inputs, feedings=["shorter", "training"], codes=lambda: nn.Embedding(10, D))


def test_rounding_before_attention_excuses_nothing():
    def rule(self, x):
        h = torch.round(x)
        return torch.round(h + 0 * self.layer(h))  # attention is thrown away

    torch.manual_seed(0)
    assert audit(Made(True, rule).eval(), seeded(2, N, D), CAUSAL).verdict == "undecided"
