"""Bahdanau attention: the equations written out again, padding, decoding, and the alignment it learns."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.models.bahdanau import Bahdanau


def model_of(width=8, seed=0):
    torch.manual_seed(seed)
    return Bahdanau(Bahdanau.Config(source_vocab=6, target_vocab=5, width=width)).double().eval()


def by_the_equations(model, source, target):
    """Logits and weights of one sequence, a step and a score at a time."""
    h, _ = model.encoder(model.read(source)[None])
    h = h[0]
    state = torch.tanh(model.bridge(h[0, model.config.width :]))  # the backward GRU at the first token
    token = torch.tensor(model.config.target_vocab)
    logits, alignment = [], []
    for t in range(len(target)):
        scores = torch.stack([model.v @ torch.tanh(model.W(state) + model.U(row)) for row in h])
        alpha = scores.exp() / scores.exp().sum()
        context = sum(weight * row for weight, row in zip(alpha, h, strict=True))
        state = model.decoder(torch.cat([model.written(token), context])[None], state[None])[0]
        logits.append(model.output(torch.cat([state, context])))
        alignment.append(alpha)
        token = target[t]
    return torch.stack(logits), torch.stack(alignment)


def test_it_is_the_equations():
    model = model_of()
    source, target = torch.randint(0, 6, (3, 7)), torch.randint(0, 5, (3, 4))
    logits, weights = model(source, target, need_weights=True)
    assert torch.allclose(model(source, target), logits)
    for b in range(3):
        expected, alignment = by_the_equations(model, source[b], target[b])
        assert torch.allclose(logits[b], expected)
        assert torch.allclose(weights[b], alignment)


def test_the_comparison_rejects_another_kernel(monkeypatch):
    model = model_of()
    source, target = torch.randint(0, 6, (1, 7)), torch.randint(0, 5, (1, 4))
    expected, _ = by_the_equations(model, source[0], target[0])
    real = er.attend
    monkeypatch.setattr("erlangen.models.bahdanau.attend", lambda *a, kernel, **o: real(*a, **o))
    assert (model(source, target)[0] - expected).abs().max() > 1e-6


def test_padding_is_neither_read_nor_attended_to():
    model = model_of()
    source, target = torch.randint(0, 6, (3, 7)), torch.randint(0, 5, (3, 4))
    lengths = [7, 4, 1]
    logits, weights = model(source, target, lengths, need_weights=True)
    for b, length in enumerate(lengths):
        alone = model(source[b : b + 1, :length], target[b : b + 1])
        assert torch.allclose(logits[b], alone[0])
        assert (weights[b, :, length:] == 0).all()
        assert torch.allclose(weights[b].sum(-1), torch.ones(4, dtype=torch.float64))


def test_generation_is_teacher_forcing_on_what_was_written():
    model = model_of()
    source = torch.randint(0, 6, (2, 5))
    written, weights = model.generate(source, 5)
    logits, again = model(source, written, need_weights=True)
    assert torch.equal(logits.argmax(-1), written)
    assert torch.allclose(again, weights)


def test_gradients_reach_the_kernel():
    model = model_of()
    model(torch.randint(0, 6, (2, 5)), torch.randint(0, 5, (2, 3))).sum().backward()
    assert model.v.grad is not None
    assert model.v.grad.abs().max() > 0


def test_every_call_is_a_row_of_the_bipartite_relation():
    model = model_of()
    report = er.audit.audit(model, (torch.randint(0, 6, (2, 5)), torch.randint(0, 5, (2, 3))), variants=False)
    assert [(call.queries, call.keys) for call in report.calls] == [(1, 5)] * 3
    assert {str(call.kernel) for call in report.calls} == {"Full()"}
    assert report.coverage.unexplained == ()


@pytest.mark.parametrize("task", ["copy", "reverse"])
def test_it_learns_the_alignment(task):
    torch.manual_seed(0)
    model = Bahdanau(Bahdanau.Config(source_vocab=16, target_vocab=16, width=32))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.5e-2, total_steps=300, pct_start=0.1)
    for _ in range(300):
        source = torch.randint(0, 16, (48, 5))
        target = source.flip(1) if task == "reverse" else source
        loss = cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    source = torch.randint(0, 16, (200, 5))
    written, weights = model.generate(source, 5)
    where = torch.arange(5).flip(0) if task == "reverse" else torch.arange(5)
    exact = (written == (source.flip(1) if task == "reverse" else source)).all(1).float().mean()
    aligned = (weights.argmax(-1) == where).float().mean()
    assert (exact.item() > 0.9, aligned.item() > 0.95) == (True, True), (exact, aligned)


def test_save_and_load(tmp_path):
    model = model_of().float()
    model.save(tmp_path / "bahdanau.safetensors")
    again = Bahdanau.load(tmp_path / "bahdanau.safetensors").eval()
    source = torch.randint(0, 6, (2, 5))
    assert torch.equal(again.generate(source, 4)[0], model.generate(source, 4)[0])


def test_bad_input_is_refused():
    model = model_of()
    source, target = torch.randint(0, 6, (2, 5)), torch.randint(0, 5, (2, 3))
    with pytest.raises(ShapeError, match=r"source \(batch, m\) and target \(batch, t\)"):
        model(source, target[:1])
    with pytest.raises(ShapeError, match="with m >= 1"):
        model(source[:, :0], target)
    with pytest.raises(ParameterError, match=r"one of 1 .. 5 for each of 2 sources, got \[6, 1\]"):
        model(source, target, [6, 1])
    with pytest.raises(ParameterError, match="for each of 2 sources"):
        model(source, target, [5])
    with pytest.raises(ParameterError, match=r"Bahdanau.Config\(width\)"):
        Bahdanau.Config(source_vocab=2, target_vocab=2, width=0)
