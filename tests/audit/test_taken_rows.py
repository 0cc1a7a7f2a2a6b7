"""Pooled outputs that read one position of padding: a row that is taken by its place, or one too many of a
mean. And padding on a side that the given mask does not show."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.testing import assert_no_padding_leak

N, END = 12, 19


class Pooling(nn.Module):
    """An encoder with a padding mask, or none, pooled in one way or another."""

    def __init__(self, pool: str, layers: int = 1, rows: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head, self.pool, self.rows = nn.Embedding(20, 16), nn.Linear(16, 3), pool, rows
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.last = nn.Linear(16, 48)

    def forward(self, input_ids, attention_mask):
        x, real, n = self.embed(input_ids), attention_mask.bool(), input_ids.shape[1]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~real)
        at, counted = torch.arange(n), attention_mask.sum(1, keepdim=True)
        if self.pool == "asks":
            q, k, v = self.last(x).chunk(3, -1)
            keys = real[:, None]
            y = (x[:, -1:] + F.scaled_dot_product_attention(q[:, -1:], k, v, attn_mask=keys))[:, 0]
        elif self.pool in ("last", "end"):
            place = (
                torch.full((len(x),), n - 1) if self.pool == "last" else (input_ids == END).int().argmax(1)
            )
            y = x[torch.arange(len(x)), place]
        else:
            kept = {
                "mean": real,
                "one more": at <= counted,
                "one before": real | F.pad(real, (-1, 1), value=False),
                "one behind": real | F.pad(real, (1, -1), value=False),
                "shifted": F.pad(real, (-1, 1), value=True),
            }[self.pool][..., None].float()
            y = (x * kept).sum(1) / kept.sum(1)
        return {"pooled": self.head(y), "rows": x} if self.rows else self.head(y)


def inputs(padded=0, side="right"):
    ids = torch.randint(19, (2, N), generator=torch.Generator().manual_seed(0))
    ids[:, -1] = END
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, N - padded :] = 0
    return {"input_ids": ids, "attention_mask": mask if side == "right" else mask.flip(1)}


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("pool", ["one more", "one behind", "one before"])
def test_a_mean_of_one_too_many_takes_no_row(pool, layers, rows):
    side = ["padded left"] if pool == "one before" else ["padded right"]
    expect = AtMost(er.Full())
    assert audit(Pooling("mean", layers, rows), inputs(), expect, feedings=side).verdict == "holds"
    assert audit(Pooling(pool, layers, rows), inputs(), expect, feedings=side).verdict == "violated"
    with pytest.raises(AssertionError):
        assert_no_padding_leak(Pooling(pool, layers, rows), inputs(), feedings=side)


def test_a_mask_that_is_shifted_is_never_right():
    for layers in (0, 1):
        report = audit(Pooling("shifted", layers), inputs(), AtMost(er.Full()), feedings=["padded right"])
        assert report.verdict in ("violated", "undecided")
    assert report.verdict == "violated"


@pytest.mark.parametrize("pool", ["last", "end"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_row_that_is_taken_by_its_place_may_be_padding(pool, layers):
    report = audit(Pooling(pool, layers), inputs(), er.Full(), feedings=["padded right"])
    assert report.verdict == "holds", report
    assert any("takes the row at position" in text for text in report.warnings)


def test_the_last_layer_may_ask_for_one_row():
    report = audit(Pooling("asks"), inputs(), AtMost(er.Full()), feedings=["padded right"])
    assert report.verdict != "violated", report


class Counted(nn.Module):
    """A causal reader whose padding stands at the end, pooled at its last token, as it counts."""

    def __init__(self, bad: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.head, self.bad = (
            nn.Embedding(20, 16),
            nn.Linear(16, 48),
            nn.Linear(16, 3),
            bad,
        )

    def forward(self, input_ids, attention_mask):
        x = self.embed(input_ids)
        x = x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=not self.bad)
        return self.head(x[torch.arange(len(x)), attention_mask.sum(1) - 1])


def test_the_given_mask_shows_the_side_of_padding():
    report = audit(Counted(), inputs(3), er.Causal())
    # Padding at the end is read by no causal model, so it does not show whether the mask is heeded.
    assert report.verdict == "undecided", report
    (reason,) = {one.reason for one in report.open}
    assert 'feedings=["padded right"] leaves it out, feedings=["padded left"] judges it' in str(reason)
    assert audit(Counted(True), inputs(3), er.Causal()).verdict == "violated"
    # Where no side is shown, or both are, every side is judged, and so is one that is asked for.
    for given in (
        inputs(),
        {
            **inputs(),
            "attention_mask": inputs(3)["attention_mask"] * inputs(2, "left")["attention_mask"].flip(0),
        },
    ):
        assert audit(Counted(), given, er.Causal()).verdict == "violated"
    for asked in (["padded left"], ["padded left", "padded right"]):
        assert audit(Counted(), inputs(3), er.Causal(), feedings=asked).verdict == "violated"
    assert audit(Counted(), inputs(3), er.Causal(), feedings=["padded right"]).verdict == "holds"


def test_padding_that_is_given_on_the_left():
    class Last(nn.Module):
        """Takes the last row, and reads padding behind it as long as nothing stands there."""

        def __init__(self, bad):
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.qkv, self.head, self.bad = (
                nn.Embedding(20, 16),
                nn.Linear(16, 48),
                nn.Linear(16, 3),
                bad,
            )

        def forward(self, input_ids, attention_mask):
            n, start = input_ids.shape[1], input_ids.shape[1] - attention_mask.sum(1, keepdim=True) - self.bad
            keep = torch.arange(n) >= start
            x = self.embed(input_ids)
            x = x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=keep[:, None])
            return self.head((x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True))

    given = inputs(3, "left")
    report = audit(Last(0), given, er.Full())
    assert report.verdict == "holds", report
    assert any('feedings=["padded left"]' in text for text in report.warnings)
    assert audit(Last(1), given, er.Full()).verdict == "violated"
