"""Findings about packed sequences name the documents of their edges."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.testing import assert_relation

N = 10
IDS = torch.tensor([0] * 4 + [1] * 6).expand(2, N)
PACKED = er.Causal() & er.Documents([4, 6])


def x():
    return torch.randn(2, N, 4, generator=torch.Generator().manual_seed(0))


class Packed(nn.Module):
    """Causal attention within documents; `leak` lets query 7 read key 3."""

    def __init__(self, leak):
        super().__init__()
        self.leak = leak

    def mask(self, ids):
        mask = (ids[:, :, None] == ids[:, None, :]).tril()
        if self.leak and ids.shape[1] == N:
            mask[:, 7, 3] = True
        return mask

    def forward(self, x):
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask(IDS[: len(x), : x.shape[1]]))


class ByIds(Packed):
    def forward(self, x, doc_ids):
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask(doc_ids))


class BySegment(Packed):
    def forward(self, x, segments):
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask(segments))


class ByPositions(Packed):
    def forward(self, x, position_ids):
        return x + F.scaled_dot_product_attention(
            x, x, x, attn_mask=self.mask((position_ids == 0).cumsum(1) - 1)
        )


class ByStarts(Packed):
    def forward(self, x, cu_seqlens):
        ids = torch.searchsorted(cu_seqlens, torch.arange(x.shape[1]), right=True).expand(len(x), -1)
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=self.mask(ids))


POSITIONS = torch.tensor([*range(4), *range(6)]).expand(2, N).contiguous()
CASES = {
    "expectation": (Packed, {}, PACKED, "document", (1, 0)),
    "by head": (Packed, {}, er.PerHead([PACKED]), "document", (1, 0)),
    "by item": (Packed, {}, er.Batch([PACKED, PACKED]), "document", (1, 0)),
    "ids": (ByIds, {"doc_ids": IDS.contiguous() + 5}, PACKED, "document", (1, 0)),
    "positions": (ByPositions, {"position_ids": POSITIONS}, "mask", "document", (1, 0)),
    "starts": (ByStarts, {"cu_seqlens": torch.tensor([0, 4, N])}, "mask", "document", (1, 0)),
    "ids alone": (ByIds, {"doc_ids": IDS.contiguous() + 5}, "mask", "document", (6, 5)),
    "another name": (BySegment, {"segments": IDS.contiguous()}, "mask", "segments", (1, 0)),
}


def expected(given):
    """The same relation, as a mask that says nothing of documents."""
    return er.FromMask(PACKED.on(N).dense()) if isinstance(given, str) else given


@pytest.mark.parametrize("case", CASES)
def test_the_documents_of_an_edge_are_named(case):
    made, more, expect, name, documents = CASES[case]
    given = {"x": x(), **more}
    report = audit(made(leak=True), given, expected(expect), feedings=["training"])
    assert report.verdict == "violated"
    first = report.findings[0]
    assert first.pair == (7, 3)
    assert (first.packing, first.documents) == (name, documents)
    said = f"query 7 ({name} {documents[0]}) reads key 3 ({name} {documents[1]})"
    assert said in str(report)
    assert first.to_json()["documents"] == list(documents)
    assert report.calls[0].counterexample.documents == documents
    with pytest.raises(AssertionError) as told:
        assert_relation(made(leak=True), given, expected(expect), feedings=["training"])
    assert said in str(told.value).splitlines()[0]


@pytest.mark.parametrize("case", CASES)
def test_the_correct_twin_is_left_in_peace(case):
    made, more, expect, _, _ = CASES[case]
    report = audit(made(leak=False), {"x": x(), **more}, expected(expect), feedings=["training"])
    assert report.verdict == "holds"
    assert report.findings == []


def test_where_nothing_is_packed_no_document_is_named():
    """Neither token ids nor positions that only count are documents."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 4)

        def forward(self, input_ids, position_ids):
            y = self.embed(input_ids) + position_ids[..., None] / N
            return F.scaled_dot_product_attention(y, y, y)

    ids = torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(N).expand(2, N).contiguous()
    report = audit(Plain(), {"input_ids": ids, "position_ids": positions}, er.Causal(), variants=False)
    assert report.findings
    assert [one.documents for one in report.findings] == [None] * len(report.findings)
    assert "(document" not in str(report)


def test_a_flow_across_documents_names_them_too():
    class Mixed(nn.Module):
        def forward(self, x):
            return x + x.roll(1, dims=1) * (torch.arange(N) > 0)[:, None]

    report = audit(Mixed(), x(), AtMost(PACKED))
    first = report.findings[0]
    assert (first.query, first.key, first.documents) == (4, 3, (1, 0))
    assert "output row 4 (document 1) depends on position 3 (document 0)" in str(report)
    assert np.array_equal(report.flow.wrong[0][0].edges(), [[4, 3]])


class Convolved(nn.Module):
    """A causal convolution that reads padding, in a model that takes positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.conv = nn.Conv1d(8, 8, 4, padding=3)

    def forward(self, input_ids, attention_mask, position_ids=None):
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        x = self.embed(input_ids) + self.places(places)
        return x + self.conv(x.mT)[..., : x.shape[1]].mT


def test_positions_of_padding_are_no_documents():
    torch.manual_seed(0)
    inputs = {"input_ids": torch.randint(3, 20, (2, 12)), "attention_mask": torch.ones(2, 12).long()}
    report = audit(Convolved(), inputs, er.Causal(), feedings=["padded left"])
    assert report.verdict == "violated"
    assert [finding.documents for finding in report.findings] == [None] * len(report.findings)
