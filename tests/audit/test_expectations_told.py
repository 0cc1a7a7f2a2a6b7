"""What an expectation leaves out, raises, or says twice is told to whoever wrote it."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.errors import ParameterError
from erlangen.testing import assert_relation
from erlangen.testing.relations import AuditWarning


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.qkv, self.causal = nn.Linear(16, 48), causal

    def forward(self, x):
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=self.causal)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Attention(True), Attention(True))


@pytest.fixture
def x():
    return torch.randn(2, 8, 16)


def test_calls_of_which_nothing_is_expected_are_told_by_the_assertion(x):
    with pytest.warns(AuditWarning, match="nothing was expected of 1"):
        report = assert_relation(model(), x, {"0": er.Causal()}, feedings=["training"])
    assert report.to_json()["not_judged"] == ["1"]


def test_where_every_call_is_judged_nothing_is_told(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = assert_relation(model(), x, {"0": er.Causal(), "1": er.Causal()}, feedings=["training"])
    assert report.to_json()["not_judged"] == []


def raising(call):
    raise ZeroDivisionError("division by zero")


def test_a_callable_that_raises_is_named_with_its_exception(x):
    with pytest.raises(ParameterError, match=r"expect\('0'\) raised ZeroDivisionError: division by zero"):
        er.audit(model(), x, raising)


def test_an_error_of_our_own_inside_a_callable_is_no_other(x):
    with pytest.raises(ParameterError, match=r"expect\('0'\) raised ParameterError: .*lookback"):
        er.audit(model(), x, lambda call: er.Window(lookback=-5))


def test_a_callable_that_raises_at_other_sizes_only_leaves_these_open(x):
    known = {8: er.Causal()}
    report = er.audit(model(), x, lambda call: known[call.queries], feedings=["shorter"])
    assert report.verdict == "undecided", report
    assert any("raised KeyError" in str(one) and "None" in str(one) for one in report.open), report.open
    fits = er.audit(model(), x, lambda call: known.get(call.queries, er.Causal()), feedings=["shorter"])
    assert fits.verdict == "holds", fits


def test_a_pattern_behind_one_that_takes_its_calls_says_so(x):
    report = er.audit(model(), x, {"*": er.Causal(), "1": er.Causal()}, feedings=["training"])
    (opened,) = [one for one in report.open if one.what.startswith("the pattern")]
    assert "matches 1, which '*' takes before it" in opened.reason
    assert "matches no" not in opened.reason
    absent = er.audit(model(), x, {"2": er.Causal(), "*": er.Causal()}, feedings=["training"])
    (opened,) = [one for one in absent.open if one.what.startswith("the pattern")]
    assert "matches no attention call; calls are 0, 1" in opened.reason
    first = er.audit(model(), x, {"1": er.Causal(), "*": er.Causal()}, feedings=["training"])
    assert first.verdict == "holds", first
