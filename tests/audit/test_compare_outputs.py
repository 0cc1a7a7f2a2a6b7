"""Every output of two sides is compared, in either order, or said not to be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from erlangen.audit import compare

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
FORMS = {
    "one": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "first": lambda a, b: (a,),
    "named": lambda a, b: {"rows": a, "more": b},
    "other order": lambda a, b: {"more": b, "rows": a},
}


class Model(nn.Module):
    """Rows that read the past, and others beside them that may read ahead."""

    def __init__(self, form: str, ahead: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scan, self.form, self.ahead = nn.GRU(8, 8, batch_first=True), form, ahead

    def forward(self, x: torch.Tensor) -> Any:
        y = self.scan(x)[0]
        return FORMS[self.form](y, y + x.roll(-1, 1) if self.ahead else x)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("one", "first", True),
        ("tuple", "tuple", True),
        ("tuple", "named", True),
        ("named", "other order", True),
        ("one", "tuple", False),
        ("first", "tuple", False),
    ],
)
def test_an_output_of_one_side_alone_is_said(first: str, second: str, same: bool) -> None:
    for pair in ((first, second), (second, first)):
        result = compare(*map(Model, pair), X)
        assert result.same is same
        assert not result.differs
        assert same or any("has one" in text for text in result.unmatched)


@pytest.mark.parametrize("form", ["tuple", "named", "other order"])
def test_every_output_is_compared(form: str) -> None:
    assert compare(Model(form), Model(form, ahead=True), X).differs


class Cached(nn.Module):
    """A running sum behind a cache; `wrong` names outputs that are off behind it."""

    def __init__(self, form: str, wrong: str = "") -> None:
        super().__init__()
        self.form, self.wrong, self.weight = form, wrong, nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor, past: torch.Tensor | None = None) -> Any:
        full = x if past is None else torch.cat([past, x], 1)
        y = self.weight * full.cumsum(1)[:, -x.shape[1] :]
        off = {name: float(past is not None and name == self.wrong) for name in ("rows", "more")}
        return FORMS[self.form](y + off["rows"], y + off["more"]), full


STEPS = {
    "all": lambda output: output,
    "renamed": lambda output: {f"step_{name}": part for name, part in output.items()},
    "without a name": lambda output: tuple(output.values()),
}


@pytest.mark.parametrize("wrong", ["", "rows", "more"])
@pytest.mark.parametrize("given", STEPS)
def test_every_output_of_a_step_is_compared(given: str, wrong: str) -> None:
    def step(model: nn.Module, part: Any, state: Any) -> tuple[Any, Any]:
        output, state = model(part.args[0], state)
        return STEPS[given](output), state

    result = compare(Cached("named", wrong).eval(), X, decode=step)
    assert result.same is not bool(wrong)
    assert result.differs is bool(wrong)


def test_an_output_that_no_step_gives_is_said() -> None:
    def step(model: nn.Module, part: Any, state: Any) -> tuple[Any, Any]:
        output, state = model(part.args[0], state)
        return {"rows": output["rows"]}, state

    result = compare(Cached("named", "more").eval(), X, decode=step)
    assert not result.same
    assert not result.differs
