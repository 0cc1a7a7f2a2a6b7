"""States of recurrent layers, (layers, batch, features): items that read the states of others."""

import pytest
import torch
from torch import nn

import erlangen as er


class Recurrent(nn.Module):
    """A GRU or LSTM with its first states; the faulty one takes their mean over the batch."""

    def __init__(self, faulty: str = "", kind: type = nn.GRU, layers: int = 1) -> None:
        super().__init__()
        self.scan, self.faulty = kind(8, 16, layers, batch_first=True), faulty

    def mixed(self, state, items):
        if self.faulty == "as many":
            return state.mean(1, keepdim=True).expand_as(state).contiguous()
        return state.mean(1, keepdim=True).expand(-1, items, -1).contiguous() if self.faulty else state

    def forward(self, x, h0):
        parts = [self.mixed(part, len(x)) for part in (h0 if isinstance(h0, tuple) else (h0,))]
        return self.scan(x, tuple(parts) if isinstance(h0, tuple) else parts[0])[0]


@pytest.mark.parametrize(("layers", "batch"), [(1, 2), (2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("faulty", ["", "as many"])
def test_items_that_read_the_states_of_others(layers, batch, faulty):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(batch, 8, 8), "h0": torch.randn(layers, batch, 16)}
    report = er.audit(Recurrent(faulty, layers=layers), inputs, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if faulty else "holds"), report
    assert {one.kind for one in report.findings} == ({"batch"} if faulty else set()), report


@pytest.mark.parametrize("faulty", ["", "as many"])
def test_both_states_of_an_lstm(faulty):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 8, 8), "h0": (torch.randn(1, 2, 16), torch.randn(1, 2, 16))}
    report = er.audit(Recurrent(faulty, nn.LSTM), inputs, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if faulty else "holds"), report
    assert {one.kind for one in report.findings} == ({"batch"} if faulty else set()), report


@pytest.mark.parametrize("faulty", ["", "any"])
def test_states_that_would_run_with_any_number_are_known_by_their_name(faulty):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(2, 8, 8), "h0": torch.randn(1, 2, 16)}
    report = er.audit(Recurrent(faulty), inputs, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if faulty else "holds"), report


class Memory(nn.Module):
    """As many memory tokens as items by chance, which all items share and all rows read."""

    def __init__(self) -> None:
        super().__init__()
        self.scan = nn.GRU(16, 16, batch_first=True)

    def forward(self, x, tokens):
        return self.scan(x + tokens.mean(1, keepdim=True))[0]


@pytest.mark.parametrize("batch", [2, 3])
def test_tokens_that_items_share_are_no_states(batch):
    torch.manual_seed(0)
    inputs = {"x": torch.randn(batch, 8, 16), "tokens": torch.randn(1, batch, 16)}
    report = er.audit(Memory(), inputs, er.Causal(), feedings=["training"])
    assert not report.findings, report
