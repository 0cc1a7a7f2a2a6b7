"""Models built with erlangen itself are audited like any other, whatever their backend."""

import pytest
import torch

import erlangen as er
from audit_models import vectors
from erlangen.audit import audit

RELATIONS = [
    er.Causal(),
    er.Window(lookback=2) | er.Global(keys=[0]),
    er.PerHead([er.Causal(), er.Full()]),
    er.Causal() & ~er.Identity(),
]


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiles", "edges"])
def test_every_backend_computes_the_relation_it_was_given(relation, backend):
    class Own(torch.nn.Module):
        def forward(self, x):
            q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
            return er.attend(q, q, q, relation, backend=backend).transpose(1, 2).flatten(2)

    report = audit(Own(), vectors(7), relation, flow=False)
    assert report.verdict == "holds"
    assert [(call.api, call.heads, call.agree) for call in report.calls] == [("attend", 2, True)]


def test_a_layer_keeps_its_relation():
    torch.manual_seed(0)
    report = audit(er.Attention(16, 2, relation=er.Window(lookback=2)), vectors(7), er.Window(lookback=3))
    assert report.verdict == "violated"
    assert report.calls[0].kernel == er.Window(lookback=2)


def test_a_relation_that_depends_on_the_data_is_measured_on_the_data():
    class Nearest(torch.nn.Module):
        def __init__(self, shift=0):
            super().__init__()
            self.shift = shift

        def forward(self, x):
            q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
            k = q.roll(self.shift, 2)
            return er.attend(q * 1e3, k, q, er.Nearest(2)).transpose(1, 2).flatten(2)

    x = vectors(7)
    report = audit(Nearest(), x, flow=False, variants=False)
    call = report.calls[0]
    assert call.agree
    assert report.data_dependent == {"": "on the content of x"}
    heads = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
    for item, measured in zip(heads, call.measured.kernel.items, strict=True):
        assert [er.Nearest(2).on(head, head) for head in item] == list(measured)
    other = audit(Nearest(shift=1), x, flow=False, variants=False).calls[0]
    assert other.measured.kernel != call.measured.kernel
