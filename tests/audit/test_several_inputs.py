"""Text beside images: rows of one output that belong to several inputs, and who may read whom there."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

N, DIM, VOCABULARY = 12, 16, 20


class TextAndImage(nn.Module):
    """Rows of text and of the patches of an image in one sequence, whose attention leaves out padding."""

    def __init__(self, image_first: bool, fault: str | None = None) -> None:
        super().__init__()
        self.embed, self.patch = nn.Embedding(VOCABULARY, DIM), nn.Conv2d(3, DIM, 8, 8)
        self.first = nn.Parameter(torch.randn(1, 1, DIM))
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.image_first, self.fault = image_first, fault

    def forward(
        self, input_ids: torch.Tensor, pixel_values: torch.Tensor, attention_mask: torch.Tensor
    ) -> torch.Tensor:
        text, image = self.embed(input_ids), self.patch(pixel_values).flatten(2).mT
        image = torch.cat([self.first.expand(len(image), -1, -1), image], 1)
        kept, seen = attention_mask.bool(), torch.ones(image.shape[:2], dtype=torch.bool)
        order = -1 if self.image_first else 1
        x = torch.cat([text, image][::order], 1)
        keys = torch.cat([kept, seen][::order], 1)[:, None].expand(-1, x.shape[1], -1)
        of_image = torch.cat([~torch.ones_like(kept), seen][::order], 1)
        if self.fault is not None:  # of the text's rows, or the image's, one reads padding
            mine = of_image if self.fault == "image" else ~of_image
            row = mine & (mine.cumsum(1) == 2)
            keys = keys | row[..., None]
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=keys))


@pytest.mark.parametrize("image_first", [False, True])
@pytest.mark.parametrize("fault", [None, "image", "text"])
def test_rows_of_padding_beside_an_image(image_first: bool, fault: str | None) -> None:
    torch.manual_seed(0)
    inputs = {
        "input_ids": torch.randint(3, VOCABULARY, (2, N)),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "attention_mask": torch.ones(2, N, dtype=torch.long),
    }
    report = audit(
        TextAndImage(image_first, fault).eval(), inputs, AtMost(er.Full()), feedings=["shorter", "padded"]
    )
    assert report.verdict == ("holds" if fault is None else "violated"), report
    assert fault is None or {finding.kind for finding in report.findings} >= {"padding"}


class Pairs(nn.Module):
    """Texts scored against images, each by each; `texts` gives the text as every image sees it."""

    def __init__(self, returns: str, bad: bool) -> None:
        super().__init__()
        self.embed, self.patch = nn.Embedding(VOCABULARY, DIM), nn.Conv2d(3, DIM, 8, 8)
        self.mix = nn.Linear(2 * DIM, DIM)
        self.returns, self.bad = returns, bad

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        text, image = self.embed(input_ids).mean(1), self.patch(pixel_values).flatten(2).mean(-1)
        shape = (len(image), len(text), DIM)
        both = torch.cat([image[:, None].expand(shape), text[None].expand(shape)], -1)
        seen = self.mix(both).tanh()
        if self.bad:  # a softmax over the images of the batch
            seen = seen.softmax(0)
        return {"texts": seen, "image_scores": seen.sum(-1), "text_scores": seen.sum(-1).mT}[self.returns]


@pytest.mark.parametrize("returns", ["texts", "image_scores", "text_scores"])
@pytest.mark.parametrize("bad", [False, True])
def test_an_entry_for_each_pair_of_items_is_of_both(returns: str, bad: bool) -> None:
    torch.manual_seed(0)
    inputs = {"input_ids": torch.randint(3, VOCABULARY, (3, N)), "pixel_values": torch.randn(3, 3, 32, 32)}
    report = audit(Pairs(returns, bad).eval(), inputs, AtMost(er.Full()), feedings=["shorter"])
    assert report.verdict == ("violated" if bad else "holds"), report
    assert not bad or {finding.kind for finding in report.findings} == {"batch"}


class Placeholders(nn.Module):
    """Tokens of an image take the rows of its patches, one after the other through the whole batch."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.config = SimpleNamespace(image_token_id=1)
        self.embed, self.patch = nn.Embedding(VOCABULARY, DIM), nn.Conv2d(3, DIM, 16, 16)
        self.scan, self.bad = nn.GRU(DIM, DIM, batch_first=True), bad

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        rows = self.patch(pixel_values).flatten(2).mT
        rows = rows.flip(0) if self.bad else rows  # every text sees the image of another one
        x = self.embed(input_ids).masked_scatter((input_ids == 1)[..., None], rows)
        return self.scan(x)[0]


@pytest.mark.parametrize("bad", [False, True])
def test_placeholders_are_not_cut_off(bad: bool) -> None:
    """With fewer tokens than patches, items would take each other's rows: no such input is made."""
    torch.manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (2, N))
    ids[:, 5:9] = 1
    inputs = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}
    feedings = ["shorter", "other sizes"]
    report = audit(Placeholders(bad).eval(), inputs, AtMost(er.Full()), feedings=feedings)
    assert report.verdict == ("violated" if bad else "holds"), report
    assert report.not_tried["shorter"] == "the model's inputs do not offer it"
    assert any(label.startswith("other sizes") for label in report.tried["feedings"])


class LastStates(nn.Module):
    """Rows of a recurrent model, and behind them the last states of its layers, (batch, features, layers)."""

    def __init__(self, features: int, bad: bool) -> None:
        super().__init__()
        self.scan = nn.GRU(DIM, features, 2, batch_first=True, bidirectional=bad)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows, states = self.scan(x)
        return rows, states.permute(1, 2, 0)


@pytest.mark.parametrize("features", [5, 8, 24])
@pytest.mark.parametrize("bad", [False, True])
def test_features_of_last_states_are_no_rows(features: int, bad: bool) -> None:
    torch.manual_seed(0)
    report = audit(LastStates(features, bad), torch.randn(2, N, DIM), er.Causal(), feedings=["shorter"])
    assert report.verdict == ("violated" if bad else "holds"), report
