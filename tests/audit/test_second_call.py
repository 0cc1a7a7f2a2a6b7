"""What a model keeps of one call and uses in the next."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM = 16


class Kept(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.qkv, self.bad, self.kept, self.calls = nn.Linear(DIM, 3 * DIM), bad, None, 0

    def attend(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        options = {"is_causal": True} if mask is None else {"attn_mask": mask}
        return x + F.scaled_dot_product_attention(q, k, v, **options)


class Counter(Kept):
    """The faulty one reads everything from its second call on."""

    def forward(self, x):
        self.calls += 1
        y = self.attend(x)
        return y + x.mean(1, keepdim=True) if self.bad and self.calls > 1 else y


class Third(Kept):
    """The same from its third call on."""

    def forward(self, x):
        self.calls += 1
        y = self.attend(x)
        return y + x.mean(1, keepdim=True) if self.bad and self.calls > 2 else y


class Cache(Kept):
    """The faulty one reads what the call before left."""

    def forward(self, x):
        y = self.attend(x)
        before, self.kept = self.kept, y.detach().mean((0, 1))
        return y + before if self.bad and before is not None else y


class Mask(Kept):
    """A mask of the first length is kept; the faulty one does without where that is too short."""

    def forward(self, x):
        n = x.shape[1]
        if self.kept is None or (not self.bad and len(self.kept) < n):
            self.kept = torch.ones(n, n).tril().bool()
        mask = self.kept[:n, :n] if len(self.kept) >= n else torch.ones(n, n).bool()
        return self.attend(x, mask)


class LongMask(Kept):
    """The longest mask is kept; the faulty one takes the wrong corner of it."""

    def forward(self, x):
        n = x.shape[1]
        if self.kept is None or len(self.kept) < n:
            self.kept = torch.ones(n, n).tril().bool()
        return self.attend(x, self.kept[-n:, :n] if self.bad else self.kept[:n, :n])


class TrainingMemory(Kept):
    """The faulty one keeps what a training step saw, and reads it in the next."""

    def forward(self, x):
        y = self.attend(x)
        if self.training and self.bad:
            y = y if self.kept is None or self.kept.shape != x.shape else y + self.kept.flip(1)
            self.kept = x.detach()
        return y


class Raises(Kept):
    """The faulty one keeps a mask of the first length, and takes no other one."""

    def forward(self, x):
        n = x.shape[1]
        if self.kept is None or not self.bad:
            self.kept = torch.ones(n, n).tril().bool()
        return self.attend(x, self.kept)


@pytest.mark.parametrize(
    ("kind", "faulty"),
    [
        (Counter, "violated"),
        (Third, "violated"),
        (Cache, "undecided"),
        (Mask, "violated"),
        (LongMask, "violated"),
        (TrainingMemory, "undecided"),
        (Raises, "undecided"),
    ],
)
@pytest.mark.parametrize("bad", [True, False])
def test_a_second_call_is_as_the_first(kind, faulty, bad):
    torch.manual_seed(0)
    report = audit(kind(bad).eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["second call"])
    assert report.verdict == (faulty if bad else "holds")
    assert report.tried["feedings"] == ["given", "second call"]
    assert report.unchanged


def test_what_is_kept_on_purpose_can_be_left_out():
    report = audit(Cache(True).eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["second call"])
    (reason,) = {one.reason for one in report.open}
    assert "depend on the inputs of an earlier call" in str(reason)
    others = audit(Cache(True).eval(), torch.randn(2, 12, DIM), er.Causal(), feedings=["alone"])
    assert others.verdict == "holds"
