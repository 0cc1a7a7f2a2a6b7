"""Padding told by lengths, by tokens, in half precision, and in a batch of one: faulty and correct."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM = 16


class Embedded(nn.Module):
    def __init__(self, bad, padding_idx=None):
        super().__init__()
        self.embed, self.qkv = nn.Embedding(30, DIM, padding_idx=padding_idx), nn.Linear(DIM, 3 * DIM)
        self.head, self.bad = nn.Linear(DIM, 3), bad

    def attend(self, x, mask):
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=mask)


class MeanPool(Embedded):
    """The faulty one divides by the length of the batch."""

    def forward(self, input_ids, attention_mask):
        real = attention_mask.bool()[..., None]
        x = self.attend(self.embed(input_ids), real.mT) * real
        return self.head(x.sum(1) / (x.shape[1] if self.bad else real.sum(1)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("bad", [True, False])
def test_padding_changes_nothing_in_any_precision(bad, dtype):
    torch.manual_seed(0)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": torch.randint(30, (2, 10)), "attention_mask": mask}
    report = audit(MeanPool(bad).to(dtype), inputs, er.Full(), feedings=[])
    assert report.verdict == ("violated" if bad else "holds")
    assert [one.kind for one in report.findings] == ["invariance"] * bad


class NoCopy(MeanPool):
    def __deepcopy__(self, memo):
        raise RuntimeError("this module cannot be copied")


def test_padding_is_open_in_half_precision_without_a_copy():
    torch.manual_seed(0)
    mask = torch.ones(2, 10, dtype=torch.long)
    mask[1, 6:] = 0
    inputs = {"input_ids": torch.randint(30, (2, 10)), "attention_mask": mask}
    report = audit(NoCopy(True).bfloat16(), inputs, er.Full(), feedings=[])
    assert report.verdict == "undecided"
    assert any("audit it in float32" in str(one.reason) for one in report.open)


class HeadsInTurn(Embedded):
    """The faulty one repeats the mask of each item in the wrong order: of one item every order is right."""

    def forward(self, input_ids, attention_mask):
        x, heads = self.embed(input_ids), 4
        b, n, _ = x.shape
        q, k, v = (t.view(b, n, heads, -1).transpose(1, 2).flatten(0, 1) for t in self.qkv(x).chunk(3, -1))
        hidden = (attention_mask == 0)[:, None]
        hidden = hidden.repeat(heads, 1, 1) if self.bad else hidden.repeat_interleave(heads, 0)
        read = (q @ k.mT).masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return x + read.view(b, heads, n, -1).transpose(1, 2).reshape(b, n, DIM)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("bad", [True, False])
def test_padding_of_a_batch_of_one_is_tried_beside_a_whole_sequence(bad, batch):
    torch.manual_seed(0)
    ones = torch.ones(batch, 10, dtype=torch.long)
    inputs = {"input_ids": torch.randint(30, (batch, 10)), "attention_mask": ones}
    report = audit(HeadsInTurn(bad), inputs, er.Full(), feedings=["padded"])
    assert report.verdict == ("violated" if bad else "holds")
    assert "a batch of one" not in " ".join(report.warnings)


class PrefixLengths(Embedded):
    """Lengths of prefixes mark no padding."""

    def forward(self, input_ids, prefix_len):
        at = torch.arange(input_ids.shape[1])
        mask = (at <= at[:, None]) | (at < prefix_len[:, None, None] + self.bad)
        return self.attend(self.embed(input_ids), mask)


@pytest.mark.parametrize(
    ("lengths", "expect"),
    [([4, 4], er.Prefix(4)), ([4, 6], er.Batch([er.Prefix(4), er.Prefix(6)]))],
)
@pytest.mark.parametrize("bad", [True, False])
def test_the_length_of_a_part_is_no_padding(bad, lengths, expect):
    torch.manual_seed(0)
    inputs = {"input_ids": torch.randint(30, (2, 12)), "prefix_len": torch.tensor(lengths)}
    report = audit(PrefixLengths(bad), inputs, expect)
    assert report.verdict == ("violated" if bad else "holds")
    assert all((one.query, one.key) == (0, lengths[one.item or 0]) for one in report.findings)


class ByToken(Embedded):
    """The token 0 is padding; the faulty one masks nothing."""

    def forward(self, items):
        return self.attend(self.embed(items), None if self.bad else (items != 0)[:, None])


class Future(Embedded):
    """Padding at the end of a causal model is read by padding alone."""

    def forward(self, items):
        n = items.shape[1]
        return self.attend(self.embed(items), torch.ones(n, n, dtype=torch.bool).tril())


@pytest.mark.parametrize(
    ("kind", "bad", "expect", "verdict"),
    [
        (ByToken, True, er.Full(), "undecided"),
        (ByToken, False, er.Full(), "holds"),
        (Future, False, er.Causal(), "holds"),
    ],
)
def test_declared_padding_that_others_read_is_open(kind, bad, expect, verdict):
    torch.manual_seed(0)
    items = torch.randint(1, 30, (2, 12))
    items[1, 8:] = 0
    report = audit(kind(bad, padding_idx=0), items, expect)
    assert report.verdict == verdict
    assert all("padding_idx of embed" in str(one.reason) for one in report.open)


class Zeroed(Embedded):
    """As SASRec is published: embeddings of padding are zeros, and their keys are not masked."""

    def forward(self, items):
        n, real = items.shape[1], (items != 0)[..., None]
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        if self.bad:
            mask[3, 5] = True
        return self.attend(self.embed(items) * real, mask) * real


@pytest.mark.parametrize("bad", [True, False])
def test_keys_of_padding_may_take_weight_where_nothing_of_it_arrives(bad):
    torch.manual_seed(0)
    report = audit(Zeroed(bad, padding_idx=0), torch.randint(1, 30, (2, 12)), er.Causal())
    assert report.verdict == ("violated" if bad else "holds")
    assert any("they take weight from the others" in one for one in report.warnings) or bad


class Pooling(Embedded):
    """What stands at padding is never read by attention; the mean of all rows counts it."""

    def __init__(self, kind, form):
        super().__init__(kind == "mean")
        self.kind, self.form = kind, form

    def forward(self, input_ids, attention_mask):
        real = attention_mask.bool()[..., None]
        x = self.attend(self.embed(input_ids), real.mT)
        pools = {
            "mean": lambda: x.mean(1),
            "masked": lambda: (x * real).sum(1) / real.sum(1),
            "first": lambda: x[:, 0],
            "last": lambda: x[:, -1],
        }
        pooled = self.head(pools[self.kind]())
        return (
            {"rows": self.head(x), "pooled": pooled} if self.form == "beside rows" else pooled.square().sum()
        )


@pytest.mark.parametrize("feedings", [None, ["padded left"]])
@pytest.mark.parametrize("kind", ["mean", "masked", "first", "last"])
def test_a_mean_that_counts_padding_is_no_row_of_padding(kind, feedings):
    torch.manual_seed(0)
    inputs = {"input_ids": torch.randint(20, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.long)}
    report = audit(Pooling(kind, "beside rows"), inputs, er.Full(), feedings=feedings)
    assert report.verdict == ("violated" if kind == "mean" else "holds")


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("kind", ["mean", "masked"])
def test_padding_of_one_item_moves_no_number_of_the_batch(kind, given):
    torch.manual_seed(0)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 1 - given
    report = audit(
        Pooling(kind, "sum"), {"input_ids": torch.randint(20, (2, 12)), "attention_mask": mask}, er.Full()
    )
    assert report.verdict == ("violated" if kind == "mean" else "holds")
    assert all((one.kind, one.item) == ("padding", 1) for one in report.findings)
