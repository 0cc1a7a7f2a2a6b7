"""Towers that never meet in attention, and what two sides of a comparison do with a batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit, compare

DIM = 16


class Tower(nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.qkv, self.causal = nn.Linear(DIM, 3 * DIM), causal

    def forward(self, x):
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=self.causal)


class TwoTowers(nn.Module):
    """A causal query, pooled at its end, and a document read as a whole: a score for each pair.

    Faults: the query tower reads everything, or a step beside attention looks ahead.
    """

    def __init__(self, fault):
        super().__init__()
        self.embed, self.fault = nn.Embedding(20, DIM), fault
        self.query, self.document = Tower(fault != "mask"), Tower(False)

    def forward(self, query, document):
        q, d = self.query(self.embed(query)), self.document(self.embed(document))
        q = q + q.roll(-1, 1) if self.fault == "roll" else q
        return F.normalize(q[:, -1], dim=-1) @ F.normalize(d.mean(1), dim=-1).T


@pytest.mark.parametrize("length", [7, 11])
@pytest.mark.parametrize("fault", [None, "mask", "roll"])
def test_each_tower_is_held_against_its_own_calls(fault, length):
    torch.manual_seed(0)
    inputs = {"query": torch.randint(20, (2, 7)), "document": torch.randint(20, (2, length))}
    report = audit(TwoTowers(fault), inputs, {"query": er.Causal(), "document": er.Full()})
    assert report.verdict == ("holds" if fault is None else "violated")


class OverItems(nn.Module):
    """The faulty one takes the mean of the batch away."""

    def __init__(self, bad, norm=False):
        super().__init__()
        self.embed, self.tower, self.bad = nn.Embedding(20, DIM), Tower(True), bad
        self.norm = nn.BatchNorm1d(10) if norm else nn.Identity()

    def forward(self, idx):
        x = self.norm(self.tower(self.embed(idx)))
        return x - x.mean(0, keepdim=True) if self.bad else x


def test_sides_differ_where_one_mixes_the_sequences_of_a_batch():
    torch.manual_seed(0)
    idx = torch.randint(20, (3, 10))
    found = compare(OverItems(True), OverItems(False), idx)
    assert not found.same
    assert "other sequences of the batch" in str(found)
    assert compare(OverItems(False), OverItems(False), idx).same
    assert compare(OverItems(True), OverItems(True), idx).same
    assert compare(OverItems(False, norm=True), idx, modes=["eval", "train"]).same  # batch statistics


def test_nested_tensors_are_refused_in_words():
    x = torch.nested.nested_tensor([torch.randn(7, DIM), torch.randn(9, DIM)], layout=torch.jagged)
    with pytest.raises(er.errors.DataError, match="is a nested tensor"):
        audit(nn.Linear(DIM, DIM), x, er.Identity())
