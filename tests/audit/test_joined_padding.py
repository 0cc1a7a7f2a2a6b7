"""Padding of an input that is joined to a class token, to registers or to another input inside a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.testing import assert_no_padding_leak

N = 12


class Joined(nn.Module):
    """An encoder with tokens of its own before, behind or among the given ones; the faulty one joins the mask
    at another end."""

    def __init__(self, where: str, extra: int, bad: bool, rows: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Linear(16, 48) for _ in range(2))
        self.own = nn.Parameter(torch.randn(1, extra, 16))
        self.where, self.extra, self.bad, self.rows = where, extra, bad, rows

    def forward(self, input_ids, attention_mask):
        at = {"front": 0, "behind": N, "middle": input_ids.shape[1] // 2}[self.where]
        wrong = {"front": N, "behind": 0, "middle": N}[self.where]

        def join(tensor, own, at):
            return torch.cat([tensor[:, :at], own, tensor[:, at:]], 1)

        x = join(self.embed(input_ids), self.own.expand(len(input_ids), -1, -1), at)
        ones = torch.ones(len(input_ids), self.extra)
        keep = join(attention_mask.float(), ones, wrong if self.bad else at).bool()[:, None]
        for layer in self.layers:
            x = x + F.scaled_dot_product_attention(*layer(x).chunk(3, -1), attn_mask=keep)
        return self.head(x if self.rows else x[:, at])


def inputs(padded):
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, N - padded :] = 0
    return {
        "input_ids": torch.randint(20, (2, N), generator=torch.Generator().manual_seed(0)),
        "attention_mask": mask,
    }


@pytest.mark.parametrize("padded", [0, 4])
@pytest.mark.parametrize("expect", [er.Full(), AtMost(er.Full())], ids=str)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(("where", "extra"), [("front", 1), ("front", 3), ("behind", 1), ("middle", 2)])
def test_padding_stands_where_its_positions_stand(where, extra, rows, expect, padded):
    few = {"feedings": ["padded"]}
    right = audit(Joined(where, extra, False, rows), inputs(padded), expect, **few)
    assert right.verdict == "holds", right
    wrong = audit(Joined(where, extra, True, rows), inputs(padded), expect, **few)
    assert wrong.verdict == "violated"
    assert any(one.kind == "padding" for one in wrong.findings)
    with pytest.raises(AssertionError):
        assert_no_padding_leak(Joined(where, extra, True, rows), inputs(padded), **few)


def test_as_many_tokens_of_its_own_as_positions():
    """Twice as many rows are no rows at twice the rate."""
    assert audit(Joined("front", N, False), inputs(4), er.Full(), variants=False).verdict == "holds"
    assert audit(Joined("front", N, True), inputs(4), er.Full(), variants=False).verdict == "violated"


class Captions(nn.Module):
    """Rows of an image before those of a text with padding; the faulty one hides keys of the image."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.bad = nn.Embedding(20, 16), nn.Linear(16, 48), bad

    def forward(self, input_ids, attention_mask, features):
        x = torch.cat([features, self.embed(input_ids)], 1)
        more = torch.ones(len(x), features.shape[1], dtype=torch.long)
        keep = torch.cat([attention_mask, more] if self.bad else [more, attention_mask], 1).bool()
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=keep[:, None])


@pytest.mark.parametrize("padded", [0, 4])
def test_another_input_is_joined(padded):
    given = {**inputs(padded), "features": torch.randn(2, 5, 16)}
    assert audit(Captions(False), given, er.Full(), feedings=["padded"]).verdict == "holds"
    assert audit(Captions(True), given, er.Full(), feedings=["padded"]).verdict == "violated"
