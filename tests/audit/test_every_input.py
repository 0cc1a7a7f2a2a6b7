"""Every input against every output, whatever its place among the arguments and the number of rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

D, N = 16, 12
EXPECT = {"encoder": er.Full(), "decoder": er.Causal(), "cross": er.Full()}


def vectors(n: int = N, seed: int = 1) -> torch.Tensor:
    return torch.randn(2, n, D, generator=torch.Generator().manual_seed(seed))


def tokens(n: int = N, seed: int = 2) -> torch.Tensor:
    return torch.randint(0, 50, (2, n), generator=torch.Generator().manual_seed(seed))


def ahead(x: torch.Tensor, by: int = 1) -> torch.Tensor:
    return F.pad(x, (0, 0, 0, by))[:, by:]


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.q, self.k, self.v, self.causal = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D), causal

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        y = x if y is None else y
        return x + F.scaled_dot_product_attention(self.q(x), self.k(y), self.v(y), is_causal=self.causal)


class Reads(nn.Module):
    """A second sequence, read across; `bad` reads one token ahead in the first."""

    def __init__(self, form: str, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.next, self.head = nn.Embedding(50, D), nn.Linear(D, D), nn.Linear(D, 50)
        self.encoder, self.decoder, self.cross = Attention(False), Attention(True), Attention(False)
        self.form, self.bad = form, bad

    def forward(self, src: torch.Tensor, tgt: torch.Tensor, labels: Any = None) -> torch.Tensor:
        x = self.embed(tgt)
        if self.bad:
            x = x + ahead(self.next(x))
        y = self.head(self.cross(self.decoder(x), self.encoder(self.embed(src))))
        if self.form == "loss":
            return F.cross_entropy(y.flatten(0, 1), labels.flatten())
        return {"rows": y, "cut": y[:, :-1], "last": y[:, -1]}[self.form]


@pytest.mark.parametrize("order", [("src", "tgt"), ("tgt", "src")])
@pytest.mark.parametrize("form", ["rows", "cut", "last", "loss"])
@pytest.mark.parametrize("bad", [True, False])
def test_a_decoder_that_reads_another_sequence(form: str, bad: bool, order: tuple[str, str]) -> None:
    given = {"src": tokens(9), "tgt": tokens(seed=7)}
    given = {name: given[name] for name in order}
    if form == "loss":
        given["labels"] = given["tgt"].roll(-1, 1)
    report = audit(Reads(form, bad).eval(), given, EXPECT, feedings=["training"])
    assert report.verdict == ("violated" if bad else "holds"), report


class Added(nn.Module):
    """Two inputs of one sequence, at `rate` positions of the first for each of the second."""

    def __init__(self, bad: float, rate: int = 1, cut: slice = slice(None), by: int = 5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.join = nn.Embedding(50, D), nn.Linear(rate * D, D)
        self.decoder, self.bad, self.rate, self.cut, self.by = Attention(True), bad, rate, cut, by

    def forward(self, frames: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        beside = self.join(frames.reshape(len(frames), -1, self.rate * D))
        x = self.embed(ids) + beside
        return self.decoder(x + self.bad * ahead(beside, self.by))[:, self.cut]


SEEN = {
    "cut": (1, slice(None, -1)),
    "every second row": (1, slice(None, None, 2)),
    "twice the rate": (2, slice(None)),
}


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("first", ["frames", "ids"])
@pytest.mark.parametrize("bad", [0.0, 0.3, 1.0])
def test_inputs_of_one_sequence_are_all_judged(kind: str, first: str, bad: float) -> None:
    rate, cut = SEEN[kind]
    given = {"frames": vectors(N * rate), "ids": tokens()}
    given = {name: given[name] for name in (first, *given)}
    report = audit(Added(bad, rate, cut).eval(), given, er.Causal(), feedings=["training"])
    if bad:
        assert report.verdict in (("violated",) if bad < 1 else ("violated", "undecided")), report
    else:
        assert report.verdict == "holds", report


@pytest.mark.parametrize("length", [5, 9, 24])
def test_a_condition_that_rows_do_not_follow_is_another_sequence(length: int) -> None:
    class Conditioned(Added):
        def forward(self, frames: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return self.decoder(self.embed(ids) + self.join(frames).mean(1, keepdim=True))

    given = {"ids": tokens(), "frames": vectors(length)}
    report = audit(Conditioned(0.0).eval(), given, er.Causal(), feedings=["training"])
    assert report.verdict == "holds", report
    assert any("frames -> output" in one.what for one in report.obligations)


class Interleaved(nn.Module):
    """Returns, states and actions, three rows a step."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.r, self.s, self.a, self.decoder = (
            nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D), Attention(True)
        )  # fmt: skip
        self.bad = bad

    def forward(self, states: torch.Tensor, actions: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
        a = self.a(actions)
        a = a + 0.5 * ahead(a) if self.bad else a
        return self.decoder(torch.stack([self.r(returns), self.s(states), a], 2).flatten(1, 2))


@pytest.mark.parametrize("bad", [True, False])
def test_three_rows_a_step(bad: bool) -> None:
    given = {name: vectors(seed=seed) for seed, name in enumerate(("states", "actions", "returns"))}
    report = audit(Interleaved(bad).eval(), given, er.Causal(), feedings=["training"])
    assert report.verdict == ("violated" if bad else "holds"), report
