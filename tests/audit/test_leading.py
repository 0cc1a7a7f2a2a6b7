"""(batch, length) given to a model that reads (length, batch): batch_first forgotten."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import audit

DIM = 8


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 20, shape, generator=torch.Generator().manual_seed(2))


class Scan(nn.Module):
    """A recurrence over tokens, in front of which positions may be added along the second axis."""

    def __init__(self, batch_first: bool, placed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.rnn = nn.Embedding(20, DIM), nn.GRU(DIM, DIM, batch_first=batch_first)
        self.places = nn.Parameter(torch.randn(40, DIM)) if placed else None

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        return self.rnn(x if self.places is None else x + self.places[: ids.shape[1]])[0]


def report(model: nn.Module, inputs: object) -> er.audit.Report:
    return audit(model.eval(), inputs, er.Causal(), feedings=["training"])


@pytest.mark.parametrize("shape", [(2, 9), (4, 9), (7, 7)])
def test_nothing_holds_where_either_axis_may_be_the_batch(shape):
    wrong = report(Scan(batch_first=False), tokens(*shape))
    assert wrong.verdict == "undecided"
    assert "batch_first" in repr(wrong)
    assert report(Scan(batch_first=True), tokens(*shape)).verdict == "holds"


@pytest.mark.parametrize("shape", [(3, 9), (7, 7), (9, 3)])
def test_positions_along_the_second_axis_tell_which_is_the_batch(shape):
    assert report(Scan(batch_first=False, placed=True), tokens(*shape)).verdict == "violated"
    assert report(Scan(batch_first=True, placed=True), tokens(*shape)).verdict == "holds"


def test_more_positions_than_sequences_are_taken_for_such():
    assert report(Scan(batch_first=False), tokens(9, 2)).verdict == "holds"


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_module_of_torch_alone(batch_first):
    x = torch.randn(3, 9, DIM, generator=torch.Generator().manual_seed(1))
    rnn = nn.LSTM(DIM, DIM, batch_first=batch_first)
    assert report(rnn, x).verdict == ("holds" if batch_first else "undecided")
    assert report(nn.LSTM(DIM, DIM), x.transpose(0, 1).contiguous()).verdict == "holds"


def test_a_mask_of_pairs_tells_which_axis_is_the_length():
    layer = nn.TransformerEncoderLayer(DIM, 2, 16)
    x = torch.randn(4, 6, DIM, generator=torch.Generator().manual_seed(1))
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    assert report(layer, {"src": x, "src_mask": mask}).verdict == "holds"
