"""Written-out attention in every style is recognised, and every style's kernel relation is exact."""

import pytest
import torch

import erlangen as er
from audit_models import STYLES, stack, vectors
from erlangen.audit import audit

RELATIONS = [er.Causal(), er.Window(lookback=2), er.Full(), er.Window(lookback=1, lookahead=1)]


@pytest.mark.parametrize("style", STYLES)
def test_each_head_of_each_layer(style):
    heads = [RELATIONS[:2], RELATIONS[2:]]
    report = audit(stack(heads, 7, style), vectors(7), flow=False)
    assert [(call.kind, call.heads, call.queries) for call in report.calls] == [("self", 2, 7)] * 2
    assert [call.kernel for call in report.calls] == [er.PerHead(pair) for pair in heads]
    assert report.coverage.unexplained == ()
    assert report.unchanged
    if style != "after_softmax":
        assert [call.declared for call in report.calls] == [er.PerHead(pair) for pair in heads]
        assert report.verdict == "measured"


def test_a_mask_after_the_softmax_is_computed_but_not_declared():
    report = audit(stack([[er.Causal()]], 5, "after_softmax"), vectors(5), er.Causal(), flow=False)
    call = report.calls[0]
    assert (call.declared, call.kernel, call.agree) == (er.Full(), er.Causal(), False)
    assert report.verdict == "holds"


@pytest.mark.parametrize("style", ["minus_1e9", "finfo_min"])
def test_a_finite_mask_value_revives_an_empty_row(style):
    relation = er.Causal() & ~er.Identity()
    report = audit(stack([[relation]], 5, style), vectors(5), relation, flow=False)
    assert report.calls[0].measured.revived_rows == ((0, 0, 0), (1, 0, 0))
    assert report.verdict == "violated"
    assert report.counterexamples[0].query == 0
    assert any("finite mask value" in text for text in report.contradictions)


@pytest.mark.parametrize("style", ["minus_inf", "masked_fill", "softmax_method"])
def test_minus_infinity_on_an_empty_row_is_nan(style):
    relation = er.Causal() & ~er.Identity()
    report = audit(stack([[relation]], 5, style), vectors(5), flow=False)
    assert report.calls[0].measured.nan_rows == ((0, 0, 0), (1, 0, 0))
    assert report.verdict == "contradictory"
    assert any("become NaN" in text for text in report.contradictions)


def test_finite_biases_are_edges_even_where_the_softmax_underflows():
    class Alibi(torch.nn.Module):
        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            distance = torch.arange(x.shape[1])[None, :] - torch.arange(x.shape[1])[:, None]
            bias = (distance * 300.0).masked_fill(distance > 0, float("-inf"))
            return torch.softmax(scores + bias, dim=-1) @ x

    report = audit(Alibi(), vectors(6), er.Causal(), flow=False)
    assert report.verdict == "holds"


def test_softmaxes_that_are_not_attention_are_counted_apart():
    class Router(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = torch.nn.Linear(16, 4)

        def forward(self, x):
            return x * torch.softmax(self.gate(x), dim=-1).amax(-1, keepdim=True)

    report = audit(Router(), vectors(5))
    assert (report.coverage.calls, report.coverage.other_softmaxes) == (0, 1)
    assert "no attention calls" in str(report)
    assert report.without_attention is None  # the softmax may have been one that was not recognised
    assert report.flow is not None
    assert report.flow.relation == er.Identity()


def test_a_softmax_over_products_that_weighs_nothing_is_unexplained():
    class Odd(torch.nn.Module):
        def forward(self, x):
            weights = torch.softmax(x @ x.transpose(-2, -1), dim=-1)
            return (weights.unsqueeze(-1) * x.unsqueeze(1)).sum(2)

    report = audit(Odd(), vectors(5), er.Full())
    assert len(report.coverage.unexplained) == 1
    assert report.verdict == "holds"  # by the flow
    assert audit(Odd(), vectors(5), er.Full(), flow=False).verdict == "undecided"


def test_keys_chosen_by_the_data_are_found_to_depend_on_it():
    class Nearest(torch.nn.Module):
        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            least = scores.topk(2, dim=-1).values[..., -1:]
            return torch.softmax(scores.masked_fill(scores < least, float("-inf")), dim=-1) @ x

    report = audit(Nearest(), vectors(8), flow=False)
    assert report.data_dependent == {"": "on the content of x"}
    assert {bound.degrees.max() for bound in report.calls[0].measured.kernel.unique} == {2}
