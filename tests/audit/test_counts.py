"""Lengths in a Python list are lengths, as in a tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import erlangen as er
from erlangen.audit import audit

N, DIM = 10, 8
IDS = torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(2))


class Scan(nn.Module):
    """A recurrence both ways over as many tokens as there are; the bad one reads padding, too."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.rnn = nn.Embedding(20, DIM), nn.GRU(DIM, DIM, batch_first=True, bidirectional=True)
        self.bad = bad

    def rows(self, ids: torch.Tensor, lengths: Any) -> torch.Tensor:
        assert not isinstance(lengths, torch.Tensor)
        x = self.embed(ids)
        if self.bad:
            return self.rnn(x)[0]
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])[0]


class Lengths(Scan):
    def forward(self, ids: torch.Tensor, lengths: Any) -> torch.Tensor:
        return self.rows(ids, lengths)


class Sizes(Scan):
    def forward(self, ids: torch.Tensor, many: Any) -> torch.Tensor:
        return self.rows(ids, many)


class Loaded(Scan):
    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        return self.rows(batch["ids"], batch["lengths"])


class Scaled(Scan):
    """Two numbers that are no lengths."""

    def forward(self, ids: torch.Tensor, scales: list[int]) -> torch.Tensor:
        assert scales == [3, 4]
        return self.rnn(self.embed(ids))[0]


def verdict(model: nn.Module, inputs: Any) -> str:
    return audit(model.eval(), inputs, er.Full(), feedings=["alone", "shorter", "padded"]).verdict


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_lengths(kind):
    inputs = {"ids": IDS, "lengths": kind((N, 7))}
    assert verdict(Lengths(bad=True), inputs) == "violated"
    assert verdict(Lengths(bad=False), inputs) == "holds"


def test_lengths_within_a_batch():
    assert verdict(Loaded(bad=True), ({"ids": IDS, "lengths": [N, 7]},)) == "violated"
    assert verdict(Loaded(bad=False), ({"ids": IDS, "lengths": [N, 7]},)) == "holds"


def test_lengths_by_another_name_are_told_by_what_they_hide():
    assert verdict(Sizes(bad=False), {"ids": IDS, "many": [N, 7]}) == "holds"


def test_other_numbers_stay_as_they_are():
    assert verdict(Scaled(bad=False), {"ids": IDS, "scales": [3, 4]}) == "holds"
