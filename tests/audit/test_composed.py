"""Mappings that cover every call, where the calls do not all compose: sizes or axes change between them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit


class Attention(nn.Module):
    """Self-attention with a residual, causal or full."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.qkv, self.causal = nn.Linear(16, 48), causal

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Speech(nn.Module):
    """An encoder at half the rate of its input, read across by a decoder; a leak beside attention or none."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.conv, self.enc = nn.Conv1d(8, 16, 3, stride=2, padding=1), Attention(False)
        self.emb, self.dec, self.bad = nn.Embedding(50, 16), Attention(True), bad
        self.cross = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, mel, tokens):
        memory, y = self.enc(self.conv(mel).mT), self.dec(self.emb(tokens))
        y = y + self.cross(y, memory, memory)[0]
        return y + y.roll(-1, 1) if self.bad else y


class Video(nn.Module):
    """Attention in space within each frame, then in time for each place; a leak beside it or none."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.space, self.time, self.bad = Attention(False), Attention(True), bad

    def forward(self, x):
        b, t, p, d = x.shape
        x = self.space(x.reshape(b * t, p, d)).view(b, t, p, d)
        x = self.time(x.transpose(1, 2).reshape(b * p, t, d)).view(b, p, t, d).transpose(1, 2)
        return x + x.roll(-1, 1) if self.bad else x


def test_what_a_decoder_reads_of_itself_is_bounded_whatever_the_rate_of_its_encoder():
    generator = torch.Generator().manual_seed(1)
    mel, tokens = (
        torch.randn(2, 8, 20, generator=generator),
        torch.randint(0, 50, (2, 7), generator=generator),
    )
    expect = {"enc": er.Full(), "dec": er.Causal(), "cross": er.Full()}
    for bad, right in ((True, "violated"), (False, "holds")):
        torch.manual_seed(0)
        given = {"mel": mel, "tokens": tokens}
        report = audit(Speech(bad).eval(), given, expect, feedings=["training"])
        assert report.verdict == right, (bad, [one.reason for one in report.obligations if one.reason])


def test_calls_that_do_not_compose_are_said_so_and_a_relation_of_the_whole_settles_it():
    x = torch.randn(2, 6, 5, 16, generator=torch.Generator().manual_seed(1))
    expect = {"space": er.Full(), "time": er.Causal()}
    torch.manual_seed(0)
    report = audit(Video(False).eval(), x, expect, variants=False)
    assert report.verdict == "undecided"
    reasons = [one.reason for one in report.obligations if one.reason]
    assert any("do not compose" in one and "'*'" in one for one in reasons)
    for bad, right in ((True, "violated"), (False, "holds")):
        torch.manual_seed(0)
        report = audit(Video(bad).eval(), x, {**expect, "*": er.Causal()}, variants=False)
        assert report.verdict == right, (bad, [one.reason for one in report.obligations if one.reason])
