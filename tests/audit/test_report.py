"""The report: a table, plain data with fixed keys, expectations of three kinds, and its cost."""

import json

import pytest
import torch
from torch.nn import functional as F

import erlangen as er
from audit_models import Stack, stack, vectors
from erlangen.audit import AtMost, audit
from erlangen.audit.observed import observe
from erlangen.audit.report import VERDICTS
from erlangen.audit.state import RandomState
from erlangen.errors import DataError, ParameterError

N = 6


def test_the_package_is_callable():
    report = er.audit(stack([[er.Causal()]], N), vectors(N), er.Causal())
    assert report.verdict == "holds"
    with pytest.raises(AttributeError, match="nothing_here"):
        er.audit.nothing_here  # noqa: B018


def test_json_has_exactly_the_promised_keys():
    report = audit(stack([[er.Causal(), er.Full()]], N), vectors(N), er.Causal())
    data = json.loads(report.dumps())
    assert list(data) == [
        "model", "verdict", "coverage", "calls", "flow", "warnings", "findings", "obligations", "tried",
        "not_tried", "not_judged",
    ]  # fmt: skip
    assert data["findings"][0]["edge"] == "extra"
    assert {one["state"] for one in data["obligations"]} == {"held", "broken"}
    assert data["coverage"] == {"calls": 1, "explained": 1, "unexplained": 0}
    (call,) = data["calls"]
    assert list(call) == [
        "module", "kind", "queries", "keys", "heads", "declared", "kernel", "bias", "agree", "expected",
        "counterexample",
    ]  # fmt: skip
    assert call["kernel"] == "PerHead([Causal(), Full()])"
    assert (call["module"], call["kind"], call["bias"], call["agree"]) == (
        "layers.0.attention",
        "self",
        None,
        True,
    )
    assert call["counterexample"]["edge"] == "extra"
    assert list(data["flow"]) == ["relation", "bias", "future_edges", "predicted", "outside_attention"]
    assert (data["flow"]["relation"], data["flow"]["predicted"]) == ("Full()", "Full()")
    assert data["flow"]["future_edges"] == N * (N - 1) // 2
    assert data["flow"]["outside_attention"] == []
    assert data["verdict"] in VERDICTS


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        (er.Causal(), "violated: Stack, 1 attention call; layers.0.attention: expected Causal(), measured"),
        (er.Full(), "holds: Stack, 1 attention call"),
        (None, "measured: Stack, 1 attention call"),
        ({"other.*": er.Full()}, "undecided: Stack, 1 attention call; open: the pattern 'other.*'"),
    ],
)
def test_repr_is_one_line_that_says_why(expect, told):
    report = audit(stack([[er.Full()]], N), vectors(N), expect, variants=False)
    assert repr(report).startswith(f"<Report {told}")
    assert "\n" not in repr(report)
    assert len(repr(report)) < 300
    assert str(report).splitlines()[0] == report.verdict_line()
    assert len(str(report).splitlines()) > 4


def test_in_a_notebook_it_is_the_table_escaped():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return x

    Odd.__name__ = "<b>Odd</b>"
    told = audit(Odd(), vectors(N), variants=False)._repr_html_()
    assert told.startswith("<pre")
    assert "&lt;b&gt;Odd&lt;/b&gt;: measured" in told


def test_inputs_that_do_not_fit_are_named_with_shapes_and_types():
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    given = {"src": torch.zeros(2, 5, 7), "src_mask": torch.zeros(5, 5, dtype=torch.bool), "is_causal": True}
    with pytest.raises(DataError) as told:
        audit(model, given, er.Causal())
    said = "(src: float32 (2, 5, 7), src_mask: bool (5, 5), is_causal: True)"
    assert f"TransformerEncoderLayer does not run on these inputs {said}: " in str(told.value)
    nested = {"ids": torch.zeros(1, 3, dtype=torch.long), "more": [torch.zeros(2, dtype=torch.half)]}
    with pytest.raises(DataError, match=r"\(input\.ids: int64 \(1, 3\), input\.more\.0: float16 \(2,\)\)"):
        audit(torch.nn.Linear(2, 2), (nested,))


def test_without_attention_and_without_flow():
    data = audit(torch.nn.Linear(16, 4), vectors(N), flow=False).to_json()
    assert (data["calls"], data["flow"]) == ([], None)


def test_the_table_groups_equal_layers():
    text = str(audit(stack([[er.Causal()]] * 40, N), vectors(N), er.Causal(), flow=False, variants=False))
    assert "layers.0.attention .. layers.39.attention (40 calls)" in text
    assert len(text.splitlines()) < 12


def test_expectations_by_pattern_and_by_function():
    model = stack([[er.Causal()], [er.Window(2)], [er.Full()]], N)
    patterns = {"layers.0.*": er.Causal(), "layers.1.*": er.Window(2)}
    report = audit(model, vectors(N), patterns, flow=False, variants=False)
    assert report.verdict == "holds"
    assert report.not_judged == ["layers.2.attention"]
    assert "nothing was expected of layers.2.attention" in str(report).splitlines()[0]
    whole = audit(model, vectors(N), {**patterns, "*": AtMost(er.Full())}, flow=False, variants=False)
    assert whole.verdict == "holds"
    assert whole.not_judged == []
    assert [call.expected for call in report.calls] == [er.Causal(), er.Window(2), None]

    asked = []

    def expect(call):
        asked.append(call.module)
        return er.Causal() if call.heads == 1 else None

    report = audit(model, vectors(N), expect, flow=False, variants=False)
    assert asked == [f"layers.{i}.attention" for i in range(3)]
    assert [one.module for one in report.counterexamples] == ["layers.1.attention", "layers.2.attention"]
    assert [one.extra for one in report.counterexamples] == [False, True]


def test_expectations_that_cannot_be():
    model = stack([[er.Causal(), er.Causal()]], N)
    with pytest.raises(ParameterError, match="has 4 heads: PerHead has 3"):
        audit(stack([[er.Causal()] * 4], N), vectors(N), er.PerHead([er.Causal()] * 3), flow=False)
    with pytest.raises(ParameterError, match="must be a relation or None"):
        audit(model, vectors(N), lambda call: "causal", flow=False)
    with pytest.raises(ParameterError, match="expect maps patterns to relations"):
        audit(model, vectors(N), {"layers.*": "causal"})


def test_a_pattern_that_matches_nothing_decides_nothing():
    report = audit(stack([[er.Causal()]], N), vectors(N), {"decoder.*": er.Causal()}, variants=False)
    assert report.verdict == "undecided"


def test_equal_masks_are_probed_once_and_a_replaced_function_is_still_seen(monkeypatch):
    model = stack([[er.Causal()] * 2] * 12, N, "sdpa_bool")
    original = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *args, **kwargs: original(*args, **kwargs))
    with torch.no_grad():
        seen = observe(model, er.audit.Inputs.of(vectors(N)), 2, RandomState.now())
    assert len(seen.calls) == 12
    assert len({id(call.kernel) for call in seen.calls}) == 1


def test_progress_is_told():
    steps = []
    audit(stack([[er.Causal()]], N), vectors(N), progress=steps.append)
    assert steps[0] == "declared and measured witnesses"
    assert f"flow from x: {N} positions" in steps


def test_half_precision():
    model = Stack([[er.Causal().on(N).dense()]], "finfo_min").to(torch.bfloat16)
    report = audit(model, vectors(N).to(torch.bfloat16), er.Causal())
    assert report.verdict == "holds"


def test_where_a_softmax_was_not_explained_the_flow_decides():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(torch.cdist(x, x).sort(-1).values, -1).cumsum(-1) @ x

    report = audit(Odd(), vectors(N), er.Full())
    assert report.coverage.explained == 0
    assert report.verdict == "holds"
    assert audit(Odd(), vectors(N), er.Full(), flow=False).verdict == "undecided"
    assert audit(Odd(), vectors(N), er.Causal()).verdict == "violated"
