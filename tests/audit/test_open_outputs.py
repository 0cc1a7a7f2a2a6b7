"""Outputs in containers that no two runs name alike, and in such that have no names."""

from __future__ import annotations

from collections import UserList, deque
from typing import Any

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import audit


class Held(nn.Module):
    """A causal scan, and beside it rows in a container, which may read the next position."""

    def __init__(self, bad: bool, hold: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scan, self.bad, self.hold = nn.GRU(8, 8, batch_first=True), bad, hold

    def forward(self, x: torch.Tensor) -> Any:
        y = self.scan(x)[0]
        return y, self.hold(y + x.roll(-1, 1) if self.bad else 2 * y)


READ = {
    "set": lambda t: {t},
    "frozenset": lambda t: frozenset([t]),
    "deque": lambda t: deque([t]),
    "values": lambda t: {"a": t}.values(),
    "user list": lambda t: UserList([t]),
}
UNREAD = {
    "several in a set": lambda t: {t, 2 * t},
    "memory": lambda t: memoryview(t.detach().numpy()),
}


def verdict(bad: bool, hold: Any) -> str:
    return audit(Held(bad, hold).eval(), torch.randn(2, 8, 8), er.Causal(), feedings=["shorter"]).verdict


@pytest.mark.parametrize("kind", READ)
def test_containers_without_names_are_read(kind: str) -> None:
    assert verdict(True, READ[kind]) == "violated"
    assert verdict(False, READ[kind]) == "holds"


@pytest.mark.parametrize("kind", UNREAD)
def test_what_cannot_be_read_is_open(kind: str) -> None:
    report = audit(Held(True, UNREAD[kind]).eval(), torch.randn(2, 8, 8), er.Causal(), feedings=["shorter"])
    assert report.verdict == "undecided"
    assert any("was not looked into" in (one.reason or "") for one in report.obligations)


def test_words_beside_rows_are_no_numbers() -> None:
    assert verdict(False, lambda _: {"a", "b"}) == "holds"
    assert verdict(False, lambda _: ("name", None, b"x", range(3))) == "holds"


class Taken(nn.Module):
    """Adds what comes in a container."""

    def forward(self, x: torch.Tensor, more: Any) -> torch.Tensor:
        return x.cumsum(1) + next(iter(more)).flip(1)


@pytest.mark.parametrize("hold", [lambda t: {t}, lambda t: deque([t])], ids=["set", "deque"])
def test_inputs_in_such_containers_are_open(hold: Any) -> None:
    x = torch.randn(2, 8, 8)
    report = audit(Taken(), {"x": x, "more": hold(2 * x)}, er.Causal(), feedings=["shorter"])
    assert report.verdict == "undecided"
