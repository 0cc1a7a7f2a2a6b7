"""Every class of wrong verdict, as a faulty model and its correct twin.

The faults are checked first with plain torch, by changing the future or the padding and looking: a twin whose
fault is not real would prove nothing.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import nn

import erlangen as er
from audit.twins import CAUSAL, TWINS, Attention, Conv, N, Residual, Scan, Then, Twin, vectors
from erlangen.audit import Inputs, audit
from erlangen.errors import ErlangenError
from erlangen.testing import assert_causal, assert_no_padding_leak, assert_relation

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore::erlangen.testing.relations.AuditWarning"),
]

FAULTY = [one for one in TWINS if one.sides in ("both", "faulty")]
CORRECT = [one for one in TWINS if one.sides in ("both", "correct")]


def named(twins):
    return pytest.mark.parametrize("twin", twins, ids=[one.name for one in twins])


@named(FAULTY)
def test_the_faulty_twin_never_holds(twin: Twin):
    model, inputs, expect = twin.faulty()
    try:
        report = audit(model, inputs, expect)
    except ErlangenError:
        assert twin.refused, "an error in place of a verdict"
        return
    assert report.verdict in twin.faulty_verdicts, f"{twin.what}\n{report}"
    if report.verdict == "violated":
        assert report.findings
        assert all(str(finding).strip() for finding in report.findings)


@named([one for one in CORRECT if one.correct_verdicts])
def test_the_correct_twin_is_not_accused(twin: Twin):
    model, inputs, expect = twin.correct()
    report = audit(model, inputs, expect)
    assert report.verdict in twin.correct_verdicts, f"{twin.what}\n{report}"


@named([one for one in FAULTY if one.reads == "causal"])
def test_assert_causal_raises_on_the_faulty_twin(twin: Twin):
    model, inputs, _ = twin.faulty()
    with pytest.raises(AssertionError):
        assert_causal(model, inputs)


@named([one for one in CORRECT if one.reads == "causal"])
def test_assert_causal_passes_on_the_correct_twin(twin: Twin):
    model, inputs, _ = twin.correct()
    assert_causal(model, inputs)


@named([one for one in FAULTY if one.reads == "padding"])
def test_assert_no_padding_leak_raises_on_the_faulty_twin(twin: Twin):
    model, inputs, _ = twin.faulty()
    with pytest.raises(AssertionError):
        assert_no_padding_leak(model, inputs)


@named([one for one in CORRECT if one.reads == "padding"])
def test_assert_no_padding_leak_passes_on_the_correct_twin(twin: Twin):
    model, inputs, _ = twin.correct()
    assert_no_padding_leak(model, inputs)


# ---- What is said beside the verdict.


def test_the_witnesses_do_not_agree_when_the_flow_goes_beyond_the_calls():
    report = audit(Then(Residual(Conv(True)), Attention(CAUSAL, "sdpa")), vectors())
    assert "witnesses agree" not in str(report).lower()


def test_sizes_that_were_not_crossed_are_named():
    report = audit(Scan(True, 1_000_000, config=False), vectors(), CAUSAL)
    assert "chunk_size" in str(report)
    assert "1000000" in str(report).replace(",", "").replace("_", "")


def test_an_audit_leaves_a_growing_list_as_it_was():
    (twin,) = [one for one in TWINS if one.name == "16-appends-to-a-list"]
    model, inputs, expect = twin.correct()
    audit(model, inputs, expect)
    assert model.seen == []


def test_a_relation_without_parentheses_is_understood_or_refused_in_words():
    with pytest.raises((AssertionError, ErlangenError), match=r"Causal\(\)"):
        assert_relation(Then(Attention(er.Full(), "sdpa")), vectors(), er.Causal)


def test_the_item_of_a_fault_is_named():
    (twin,) = [one for one in TWINS if one.name == "06-one-item"]
    report = audit(*twin.faulty())
    assert {finding.item for finding in report.findings} == {1}


def test_every_line_has_a_twin():
    assert {one.line for one in TWINS} >= set(range(1, 17)) - {13}
    assert len({one.name for one in TWINS}) == len(TWINS)


# ---- The twins are what they say, seen with plain torch.


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors inside a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Inputs):
        return tensors(value.args) + tensors(dict(value.kwargs))
    if isinstance(value, dict):
        return [found for part in value.values() for found in tensors(part)]
    if isinstance(value, tuple | list):
        return [found for part in value for found in tensors(part)]
    return tensors(vars(value)) if hasattr(value, "__dataclass_fields__") else []


def swapped(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """The same inputs with one tensor in place of another."""
    if value is old:
        return new
    if isinstance(value, Inputs):
        return swapped(dict(value.kwargs), old, new)
    if isinstance(value, dict):
        return {key: swapped(part, old, new) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(swapped(part, old, new) for part in value)
    return value


def other(content: torch.Tensor, seed: int) -> torch.Tensor:
    """Other content everywhere; the placeholder token 7 neither appears nor goes."""
    generator = torch.Generator().manual_seed(seed)
    if content.is_floating_point():
        return torch.randn(content.shape, generator=generator)
    moved = (content.long() + torch.randint(1, 20, content.shape, generator=generator)) % 20
    moved[moved == 7] = 8
    return torch.where(content == 7, 7, moved).to(content.dtype)


def seen(model: nn.Module, inputs: Any) -> list[torch.Tensor]:
    """Every floating tensor that the model or one of its modules returns, always from the same seed."""
    found: list[torch.Tensor] = []
    handles = [
        module.register_forward_hook(lambda _m, _i, out: found.extend(t.detach() for t in tensors(out)))
        for module in model.modules()
    ]
    torch.manual_seed(0)
    if isinstance(inputs, tuple):
        model(*inputs)
    elif isinstance(inputs, dict):
        model(**inputs)
    else:
        model(inputs)
    for handle in handles:
        handle.remove()
    return [t for t in found if t.is_floating_point()]


def reads_future(model: nn.Module, inputs: Any, content: torch.Tensor, axis: int) -> bool:
    """Whether some row of some module before t moves when the content from t on changes, in any mode."""
    n = content.shape[axis]
    for mode in ("eval", "grad", "train", "autocast"):
        watched = copy.deepcopy(model).train(mode == "train")
        with contextlib.ExitStack() as stack:
            if mode == "autocast":
                stack.enter_context(torch.autocast("cpu"))
            stack.enter_context(torch.set_grad_enabled(mode in ("grad", "train")))
            for seed in range(4 if mode == "eval" else 1):
                base = content if seed == 0 else other(content, seed)
                before = seen(watched, swapped(inputs, content, base))
                for t in sorted({1, 3, 6, 8, n - 4, n - 1}):
                    changed = base.clone()
                    later = [slice(None)] * base.dim()
                    later[axis] = slice(t, None)
                    changed[tuple(later)] = other(base, 100 + seed)[tuple(later)]
                    after = seen(watched, swapped(inputs, content, changed))
                    if len(before) != len(after) or any(
                        _moved(a, b, t, n, axis, content.shape[1 - axis])
                        for a, b in zip(before, after, strict=True)
                    ):
                        return True
    return False


def _moved(a: torch.Tensor, b: torch.Tensor, t: int, n: int, axis: int, batch: int) -> bool:
    if a.dim() < 2 or a.shape[axis] != n or a.shape[1 - axis] != batch:
        return False
    if not bool(a.isfinite().all()):
        return True
    rows = (a.float() - b.float()).transpose(0, axis)[:t] if axis else (a - b)[:t]
    return float(rows.abs().max()) > 1e-5


def causal_case(twin: Twin, bad: bool) -> tuple[nn.Module, Any, torch.Tensor, int]:
    model, inputs, _ = twin.faulty() if bad else twin.correct()
    inputs = inputs if not isinstance(inputs, Inputs) else dict(inputs.kwargs)
    content = inputs[twin.content] if twin.content else tensors(inputs)[0]
    if twin.line == 15:
        longer = vectors(24)
        inputs, content = swapped(inputs, content, longer), longer
    if twin.name == "06-batch-size-one":
        inputs = content = content[:1]
    return model, inputs, content, 0 if content.shape[0] == N else 1


@named([one for one in TWINS if one.reads == "causal"])
def test_the_fault_is_real_and_the_correct_twin_is_causal(twin: Twin):
    if twin.sides == "both":
        assert not reads_future(*causal_case(twin, False))
    assert reads_future(*causal_case(twin, True))


def padding_moves(model: nn.Module, inputs: dict[str, Any]) -> bool:
    """Whether a real row of item 1 moves with padding, or is another one without it."""
    name = next(key for key in inputs if "mask" in key or key == "valid")
    mask = inputs[name]
    real = mask == mask[0, 0]
    content = next(t for key, t in inputs.items() if key != name and t.shape[1] == mask.shape[1])
    both = sum(t.shape[:2] == mask.shape for t in inputs.values()) > 2
    fresh = other(content, 5)
    padded = {name: mask, **{key: t for key, t in inputs.items() if key != name}}
    changed = torch.where(real.view(*real.shape, *[1] * (content.dim() - 2)), content, fresh)
    before, after = model(**padded), model(**swapped(padded, content, changed))
    rows = real if before.shape[1] == real.shape[1] and not both else None
    if before.shape[1] * 2 == real.shape[1]:
        rows = real[:, 1::2]
    gap = (before - after).abs().amax(-1)
    if float((gap if rows is None else gap[rows]).max()) > 1e-5:
        return True
    if rows is None or rows.shape[1] != real.shape[1]:
        return False
    kept = content[1:, real[1]]
    marks = torch.full(kept.shape[:2], mask[0, 0].item(), dtype=mask.dtype)
    alone = model(**{key: kept if t is content else marks for key, t in padded.items()})
    for left in (False, True):
        size = mask.shape[1] - kept.shape[1]
        side = [fresh[1:, :size], kept] if left else [kept, fresh[1:, :size]]
        marks = [mask[1:, ~real[1]], mask[1:, real[1]]]
        whole = torch.cat(side, 1)
        marked = torch.cat(marks if left else marks[::-1], 1)
        out = model(**{key: whole if t is content else marked for key, t in padded.items()})
        out = out[:, size:] if left else out[:, : kept.shape[1]]
        if float((out - alone).abs().max()) > 1e-5:
            return True
    return False


@named([one for one in TWINS if one.reads == "padding"])
def test_the_padding_fault_is_real(twin: Twin):
    for bad in (False, True):
        model, inputs, _ = twin.faulty() if bad else twin.correct()
        inputs = inputs if not isinstance(inputs, Inputs) else dict(inputs.kwargs)
        with torch.no_grad():
            assert padding_moves(model, inputs) is bad


@named(TWINS)
def test_the_models_run(twin: Twin):
    for build in (twin.faulty, twin.correct):
        model, inputs, _ = build()
        with torch.no_grad():
            assert tensors(Inputs.of(inputs).run(model))
