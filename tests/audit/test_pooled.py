"""Outputs without rows: leaks between sampled positions, padding that is pooled, masks of two sequences,
modes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit, compare

N = 24


class Reader(nn.Module):
    """Causal attention, hidden from view or not, with one more edge (row, key) or none, then pooled."""

    def __init__(self, pool: str, edge: tuple[int, int] | None, hidden: bool) -> None:
        super().__init__()
        self.qkv, self.pool, self.edge, self.hidden = nn.Linear(16, 48), pool, edge, hidden

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        if self.edge is not None:
            mask[self.edge] = True
        if self.hidden:
            e = (q @ k.mT / 4).exp() * mask
            y = x + (e / e.sum(-1, keepdim=True)) @ v
        else:
            y = x + F.scaled_dot_product_attention(q, k, v, is_causal=True)
            if self.edge is not None:
                y = y + F.one_hot(torch.tensor(self.edge[0]), x.shape[1])[:, None] * x[:, self.edge[1], None]
        return {"mean": y.mean(1), "loss": y.square().mean(), "rows": y}[self.pool]


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("pool", ["mean", "loss", "rows"])
def test_a_leak_between_sampled_positions_of_a_pooled_output_is_found(pool, hidden):
    torch.manual_seed(0)
    x, few = torch.randn(2, N, 16), {"positions": [0, 12], "variants": False}
    faulty = audit(Reader(pool, (3, 20), hidden), x, er.Causal(), **few)
    assert faulty.verdict == "violated"
    assert (faulty.findings[0].query, faulty.findings[0].key) == (3, 20)
    assert audit(Reader(pool, None, hidden), x, er.Causal(), **few).verdict == "holds"


def test_prefixes_are_changed_where_rows_may_not_read_them():
    torch.manual_seed(0)
    x, expect = torch.randn(1, N, 16), er.Documents([12, 12])

    class Two(nn.Module):
        def __init__(self, edge):
            super().__init__()
            self.edge = edge

        def forward(self, x):
            mask = torch.zeros(N, N, dtype=torch.bool)
            mask[:12, :12] = mask[12:, 12:] = True
            if self.edge is not None:
                mask[self.edge] = True
            e = (x @ x.mT / 4).exp() * mask
            return (e / e.sum(-1, keepdim=True)) @ x

    few = {"positions": [0, 12], "variants": False}
    assert audit(Two((20, 3)), x, expect, **few).verdict == "violated"
    assert audit(Two(None), x, expect, **few).verdict == "holds"


class Pooled(nn.Module):
    """An encoder with a padding mask whose output is pooled in one way or another."""

    def __init__(self, pool: str, masked: bool = True) -> None:
        super().__init__()
        self.embed, self.qkv, self.pool, self.masked = nn.Embedding(50, 16), nn.Linear(16, 48), pool, masked

    def forward(self, ids, attention_mask=None):
        real = torch.ones_like(ids) if attention_mask is None else attention_mask
        x, n = self.embed(ids), ids.shape[1]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        e = (q @ k.mT / 4).exp() * (real[:, None] if self.masked else 1)
        x = x + (e / e.sum(-1, keepdim=True)) @ v
        counted = (x * real[..., None]).sum(1)
        return {
            "mean": counted / real.sum(1, keepdim=True),
            "mean over all": x.mean(1),
            "mean by length": counted / n,
            "first": x[:, 0],
            "last": x[:, -1],
        }[self.pool]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    ("pool", "masked", "right"),
    [
        ("mean", True, True), ("first", True, True), ("last", True, True),
        ("mean over all", True, False), ("mean by length", True, False),
        ("mean", False, False), ("first", False, False), ("last", False, False),
    ],
)  # fmt: skip
def test_padding_of_a_pooled_output_that_the_audit_adds(pool, masked, right, given):
    torch.manual_seed(0)
    inputs = {"ids": torch.randint(0, 50, (2, 12))}
    if given:
        inputs["attention_mask"] = torch.ones(2, 12, dtype=torch.long)
    report = audit(Pooled(pool, masked), inputs, er.Full(), feedings=["padded"])
    assert report.verdict == ("holds" if right else "violated")


class Translator(nn.Module):
    """Source and target with a mask each; `fault` names the place where one of them is forgotten."""

    def __init__(self, fault: str = "", pooled: bool = False) -> None:
        super().__init__()
        self.fault, self.pooled, self.embed = fault, pooled, nn.Embedding(50, 16)
        self.parts = nn.ModuleList(nn.Linear(16, 48) for _ in range(3))

    def forward(self, src, tgt, src_mask, tgt_mask):
        masks = {
            name: torch.ones_like(mask) if self.fault == name else mask
            for name, mask in (("src", src_mask), ("tgt", tgt_mask), ("cross", src_mask))
        }
        m = tgt.shape[1]
        order = torch.ones(m, m).tril()
        x = self._attend(0, self.embed(src), None, masks["src"][:, None])
        y = self._attend(1, self.embed(tgt), None, masks["tgt"][:, None] * order + torch.eye(m) * 1e-3)
        y = self._attend(2, y, x, masks["cross"][:, None])
        if self.fault == "scaled":
            y = y * src_mask.float().mean(1)[:, None, None]
        if not self.pooled:
            return y
        count = m if self.fault == "length" else tgt_mask.sum(1, keepdim=True)
        return (y * tgt_mask[..., None]).sum(1) / count

    def _attend(self, part, x, other, mask):
        q, _, _ = self.parts[part](x).chunk(3, dim=-1)
        _, k, v = self.parts[part](x if other is None else other).chunk(3, dim=-1)
        e = (q @ k.mT / 4).exp() * mask
        return x + (e / e.sum(-1, keepdim=True)) @ v


FAULTS = [(fault, pooled) for fault in ("", "src", "tgt", "cross", "scaled") for pooled in (False, True)]


@pytest.mark.parametrize("sizes", [(12, 9), (9, 9)])
@pytest.mark.parametrize(("fault", "pooled"), [*FAULTS, ("length", True)])
def test_each_of_two_masks_is_tried(fault, pooled, sizes):
    torch.manual_seed(0)
    src, tgt = (torch.randint(0, 50, (2, size)) for size in sizes)
    masks = {"src_mask": torch.ones_like(src), "tgt_mask": torch.ones_like(tgt)}
    report = audit(Translator(fault, pooled), {"src": src, "tgt": tgt, **masks}, feedings=["padded"])
    assert report.verdict == ("contradictory" if fault else "measured")
    assert "padded left (tgt_mask)" in report.tried["feedings"]


class Shifted(nn.Module):
    """Reads one step ahead in training alone."""

    def __init__(self, fault: bool, pool: str) -> None:
        super().__init__()
        self.qkv, self.fault, self.pool, self.drop = nn.Linear(16, 48), fault, pool, nn.Dropout(0.1)

    def forward(self, x):
        if self.fault and self.training:
            x = x + x.roll(-1, 1)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y = x + self.drop(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        second = {"first": x.mean(1), "second": y}
        return {"mean": y.mean(1), "loss": y.square().mean(), "second": second}[self.pool]


@pytest.mark.parametrize("pool", ["mean", "loss", "second"])
def test_modes_are_compared_by_the_rows_before_a_pooled_output(pool):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 16)
    faulty = compare(Shifted(True, pool), x, modes=["eval", "train"])
    assert not faulty.same
    assert faulty.differences[0].reader == "train"
    assert compare(Shifted(False, pool), x, modes=["eval", "train"]).same


def test_modes_of_a_pooled_output_whose_rows_nobody_sees_are_not_said_to_be_the_same():
    class Hidden(nn.Module):
        def forward(self, x):
            summed = (x.numpy() ** 2).sum(1)  # no tensor with rows is ever made
            return torch.from_numpy(summed)

    result = compare(Hidden(), torch.randn(2, 8, 16), modes=["eval", "train"])
    assert not result.same
    assert "no tensor with rows" in str(result)


class FirstRow(nn.Module):
    """A decoder with a padding mask that gives its rows, and its first row or their average."""

    def __init__(self, fault=None, averaged=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.fault, self.averaged = (
            nn.Embedding(40, 16),
            nn.Linear(16, 48),
            fault,
            averaged,
        )

    def forward(self, input_ids, attention_mask=None):
        n, x = input_ids.shape[1], self.embed(input_ids)
        scores = torch.zeros(len(x), n, n).masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -1e9)
        if attention_mask is not None and self.fault != "rows":
            scores = scores.masked_fill(attention_mask[:, None, :] == 0, -1e9)  # a row of padding reads all
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        y = x + F.scaled_dot_product_attention(q, k, v, attn_mask=scores)
        return {"rows": y, "pooled": y.mean(1) if self.averaged else y[:, 0]}


def test_the_first_row_may_be_padding():
    ids = torch.randint(1, 40, (2, 12), generator=torch.Generator().manual_seed(0))
    report = audit(FirstRow().eval(), {"input_ids": ids}, er.Causal())
    assert report.verdict == "holds", report
    assert any("takes the row at position 0, which is padding" in text for text in report.warnings)
    for faulty in (FirstRow("rows"), FirstRow(averaged=True)):
        found = audit(faulty.eval(), {"input_ids": ids}, er.Causal())
        assert "padding" in {one.kind for one in found.findings}, found
