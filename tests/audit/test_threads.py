"""Audits in several threads and inside one another: each sees its own calls, and nothing is left behind."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack, vectors
from erlangen.attention import attend
from erlangen.audit import audit
from erlangen.audit.capture.session import Session
from erlangen.audit.state import exclusive, untouched

OWN_CODE = attend.__code__
RELATIONS = [er.Causal(), er.Window(lookback=2), er.Full(), er.Window(lookback=1, lookahead=1)]


class Own(nn.Module):
    """Built with erlangen; it has dropout, so that audits at once would disturb each other's random state."""

    def __init__(self, relation):
        super().__init__()
        self.relation = relation

    def forward(self, x):
        q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
        return F.dropout(er.attend(q, q, q, self.relation).transpose(1, 2).flatten(2), 0.2, self.training)


def test_eight_threads_audit_different_models_at_once():
    start = threading.Barrier(8)
    meant = [RELATIONS[i % 4] for i in range(8)]
    expected = [relation if i % 3 else er.Window(lookback=4) for i, relation in enumerate(meant)]
    models = [Own(r) if i % 2 else stack([[r]], 7, "sdpa") for i, r in enumerate(meant)]

    def one(index):
        start.wait()
        return audit(models[index], vectors(7), expected[index])

    with ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(one, range(8)))
    assert [report.verdict for report in reports] == ["holds" if i % 3 else "violated" for i in range(8)]
    assert [[call.kernel for call in report.calls] for report in reports] == [[r] for r in meant]
    assert all(report.unchanged for report in reports)
    assert attend.__code__ is OWN_CODE


def test_sessions_in_threads_see_their_own_calls():
    """Without the lock of an audit the sessions overlap; one thread runs a model that nobody watches."""
    together = threading.Barrier(4)

    def one(index):
        model, seen = Own(RELATIONS[index]).eval(), []
        if index == 3:
            together.wait()
            for _ in range(20):
                model(vectors(7))
            together.wait()
            return seen
        with Session(model, seen.append, 2):
            together.wait()
            for _ in range(index + 1):
                model(vectors(7))
            together.wait()
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(one, range(4)))
    assert [[call.relation for call in calls] for calls in seen] == [
        [RELATIONS[0]],
        [RELATIONS[1]] * 2,
        [RELATIONS[2]] * 3,
        [],
    ]
    assert attend.__code__ is OWN_CODE


def test_the_same_model_watched_in_one_thread_and_run_in_another():
    model, seen = stack([[er.Causal()]], 6, "softmax_module").eval(), []
    with Session(model, seen.append, 2) as session, ThreadPoolExecutor(1) as pool:
        pool.submit(model, vectors(6)).result()
        assert session.frames.stack == []
        assert seen == []
        model(vectors(6))
    assert len(seen) == 1


def test_audits_exclude_one_another():
    running, most = [], []

    class Counts(nn.Module):
        def forward(self, x):
            running.append(self)
            most.append(len(running))
            running.remove(self)
            return x

    def one(_):
        with untouched(nn.Identity()):
            running.append(1)
            most.append(len(running))
            running.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(64)))
    assert set(most) == {1}
    with exclusive(), exclusive():
        assert audit(Counts(), vectors(3)).verdict == "measured"


def test_an_audit_inside_an_audit():
    inner = []

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Own(er.Causal())

        def forward(self, x):
            inner.append(audit(self.inner, x, er.Causal(), flow=False, variants=False).verdict)
            q = x[:, None]
            return er.attend(q, q, q, er.Window(lookback=1))[:, 0]

    report = audit(Outer(), vectors(6), er.Window(lookback=1), flow=False, variants=False)
    assert report.verdict == "holds"
    assert [call.kernel for call in report.calls] == [er.Window(lookback=1)]
    assert set(inner) == {"holds"}
    assert report.unchanged
    assert attend.__code__ is OWN_CODE


def test_a_session_inside_a_session():
    model, outer, inner = Own(er.Causal()).eval(), [], []
    with Session(model, outer.append, 2):
        with Session(model, inner.append, 2):
            model(vectors(5))
        model(vectors(5))
    assert (len(outer), len(inner)) == (2, 1)
    assert attend.__code__ is OWN_CODE


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_interrupt_leaves_nothing(error):
    class Interrupted(nn.Module):
        def forward(self, x):
            if attend.__code__ is not OWN_CODE:
                raise error("stopped")
            return er.attend(x, x, x, er.Causal())

    model = Interrupted()
    if error is ValueError:  # a model that fails under observation only
        assert audit(model, vectors(5), er.Causal(), flow=False, variants=False).verdict == "undecided"
    else:
        with pytest.raises(error):
            audit(model, vectors(5), er.Causal(), flow=False, variants=False)
    assert attend.__code__ is OWN_CODE
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert torch.overrides._get_current_function_mode_stack() == []
    assert audit(Own(er.Causal()), vectors(5), er.Causal(), flow=False).verdict == "holds"


def test_an_interrupt_while_a_session_begins_leaves_nothing():
    class Odd(nn.Linear):
        def register_forward_hook(self, *args, **kwargs):
            raise KeyboardInterrupt

    model = nn.Sequential(nn.Linear(2, 2), Odd(2, 2))
    with pytest.raises(KeyboardInterrupt), Session(model, lambda call: None):
        pass
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert attend.__code__ is OWN_CODE
