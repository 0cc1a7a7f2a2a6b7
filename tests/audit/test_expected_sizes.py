"""Expectations that cannot be those of the inputs are refused in words."""

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.errors import ParameterError


@pytest.mark.parametrize("wrap", [lambda one: one, AtMost, lambda one: {"*": one}])
def test_a_batch_of_another_count_is_refused(wrap):
    model, x = nn.GRU(8, 8, batch_first=True), torch.randn(2, 6, 8)
    for count in (1, 2):
        report = audit(model, x, wrap(er.Batch([er.Causal()] * count)), variants=False)
        assert report.verdict == "holds"
    with pytest.raises(ParameterError, match="Batch has 3 relations, and the inputs are a batch of 2"):
        audit(model, x, wrap(er.Batch([er.Causal()] * 3)), variants=False)


@pytest.mark.parametrize("given", [AtMost(er.Causal()), "Causal()", er.Causal, None])
def test_an_upper_bound_of_no_relation_is_refused(given):
    with pytest.raises(ParameterError, match="AtMost takes a relation"):
        AtMost(given)
