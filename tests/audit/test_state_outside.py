"""State that a model keeps outside of itself: an audit cannot put it back, and says so."""

from functools import lru_cache

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er

MASKS: dict[str, torch.Tensor] = {}
SEEN: list[int] = []


@pytest.fixture(autouse=True)
def _empty():
    MASKS.clear()
    SEEN.clear()
    longest.cache_clear()


class Shared(nn.Module):
    """A mask in a dictionary of the file, as large as the longest input so far; the faulty one is cut at its
    wrong end."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.qkv, self.chunk_size, self.faulty = nn.Linear(16, 48), 16, faulty

    def forward(self, x):
        n = x.shape[1]
        if len(MASKS.get("mask", ())) < n:
            MASKS["mask"] = torch.ones(n, n, dtype=torch.bool).tril()
        mask = MASKS["mask"][-n:, :n] if self.faulty else MASKS["mask"][:n, :n]
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=mask)


@pytest.mark.parametrize("faulty", [True, False])
def test_a_global_mask_that_longer_inputs_replace(faulty):
    torch.manual_seed(0)
    model, x = Shared(faulty).eval(), torch.randn(2, 12, 16)
    before = model(x)
    report = er.audit(model, x, er.Causal())
    assert report.unchanged == torch.equal(before, model(x)) == (not faulty)
    assert ("bit-identical before and after" in str(report)) == (not faulty)
    assert report.verdict == ("violated" if faulty else "holds"), report


class Counting(nn.Module):
    """Adds how many lengths it has met in training: a sum of the file, of which causality knows nothing."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.layer, self.faulty = nn.GRU(16, 16, batch_first=True), faulty

    def forward(self, x):
        if self.training and x.shape[1] not in SEEN:
            SEEN.append(x.shape[1])
        return self.layer(x)[0] + (float(len(SEEN)) if self.faulty else 0.0)


@pytest.mark.parametrize("faulty", [True, False])
def test_what_training_leaves_behind_is_undecided(faulty):
    torch.manual_seed(0)
    report = er.audit(Counting(faulty), torch.randn(2, 8, 16), er.Causal(), feedings=["training"])
    assert report.unchanged == (not faulty)
    assert report.verdict == ("undecided" if faulty else "holds"), report
    if faulty:
        assert "outside of itself" in str(report.open[0])
        assert any("other outputs than before" in text for text in report.serious())


@lru_cache(maxsize=1)
def longest(kind: str) -> list[int]:
    return [0]


class Cached(nn.Module):
    """Refuses inputs that are shorter than the longest, or takes no notice of it."""

    def __init__(self, faulty: bool) -> None:
        super().__init__()
        self.layer, self.faulty = nn.GRU(16, 16, batch_first=True), faulty

    def forward(self, x):
        held = longest("of all")
        held[0] = max(held[0], x.shape[1])
        if self.faulty and held[0] > x.shape[1]:
            raise ValueError("shorter than before")
        return self.layer(x)[0]


@pytest.mark.parametrize("faulty", [True, False])
def test_a_model_that_no_longer_runs_afterwards(faulty):
    torch.manual_seed(0)
    given = [torch.randn(2, 8, 16), torch.randn(2, 9, 16)]
    report = er.audit(Cached(faulty), given, er.Causal(), feedings=[])
    assert report.unchanged == (not faulty)
    assert report.verdict == ("undecided" if faulty else "holds"), report
    assert any("does not run on the given inputs" in str(one) for one in report.open) == faulty
