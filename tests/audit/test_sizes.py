"""Sizes beyond the given inputs: crossed wherever a model holds them, or said."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

N, DIM, SIZE = 12, 16, 20
GLOBAL = 20


class Beyond(nn.Module):
    """A sum of what was before; beyond some size the faulty one reads one position ahead."""

    def __init__(self, bad, hold=lambda model: None, size=lambda model: SIZE):
        super().__init__()
        self.linear, self.bad, self.size = nn.Linear(DIM, DIM), bad, size
        hold(self)

    def forward(self, x):
        y = self.linear(x)
        z = y.cumsum(1)
        if self.bad and x.shape[1] > self.size(self):
            z = z + F.pad(y, (0, 0, 0, 1))[:, 1:]
        return z


class InCode(Beyond):
    def forward(self, x):
        y = self.linear(x).cumsum(1)
        return y + x.flip(1) if self.bad and x.shape[1] > 20 else y


class InGlobals(Beyond):
    def forward(self, x):
        y = self.linear(x).cumsum(1)
        return y + x.flip(1) if self.bad and x.shape[1] > GLOBAL else y


def attribute(name, value=SIZE):
    return lambda model: setattr(model, name, value)


def buffer(model):
    model.register_buffer("mask", torch.ones(SIZE, SIZE).tril())


HELD = {
    "tile": attribute("tile"),
    "context_length": attribute("context_length"),
    "BLOCK": attribute("BLOCK"),
    "w": attribute("w"),
    "num_frames": attribute("num_frames"),
    "a list": attribute("reach", [4, SIZE]),
    "options": attribute("options", {"scan": {"cells": SIZE}}),
    "buffer": buffer,
    "tensor": attribute("allowed", torch.ones(1, SIZE, SIZE).bool()),
}


def verdict(model):
    torch.manual_seed(0)
    return audit(model.eval(), torch.randn(2, N, DIM), er.Causal(), feedings=["longer"])


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("bad", [True, False])
def test_a_size_is_crossed_whatever_it_is_called(held, bad):
    report = verdict(Beyond(bad, HELD[held]))
    assert report.verdict == ("violated" if bad else "holds")
    assert max(report.tried["lengths"]) > 2 * SIZE


@pytest.mark.parametrize("kind", [InCode, InGlobals])
@pytest.mark.parametrize("bad", [True, False])
def test_a_size_in_the_code_alone_is_crossed(kind, bad):
    assert verdict(kind(bad)).verdict == ("violated" if bad else "holds")


def test_a_size_of_the_width_is_crossed_and_a_width_is_not():
    named = attribute("tile", DIM), attribute("hidden_size", DIM)
    tiled, wide = (verdict(Beyond(False, hold)) for hold in named)
    assert (max(tiled.tried["lengths"]), max(wide.tried["lengths"])) == (2 * DIM + 3, N)


def test_many_sizes_are_crossed_by_one_length():
    def hold(model):
        model.a, model.b, model.c, model.d_inner = 7, 14, 20, 16

    report = verdict(Beyond(False, hold))
    assert report.tried["lengths"] == [N, 43]


def test_a_boundary_is_where_positions_are_changed():
    class Border(Beyond):
        def forward(self, x):
            z = self.linear(x).cumsum(1)
            if self.bad and x.shape[1] > self.tile:
                z[:, self.tile - 1] += x[:, self.tile]
            return z

    hold = attribute("tile", 100)
    assert verdict(Border(True, hold)).verdict == "violated"
    assert verdict(Border(False, hold)).verdict == "holds"


def test_what_is_too_long_to_be_tried_is_said():
    report = verdict(Beyond(True, attribute("tile", 600)))
    assert report.verdict == "holds"
    assert "beyond tile = 600" in report.not_tried["longer"]
    assert "longer" not in verdict(Beyond(False, attribute("num_layers", 600))).not_tried


def test_beyond_a_table_of_positions_smaller_sizes_are_crossed_still():
    class Table(Beyond):
        def __init__(self, bad):
            super().__init__(bad, attribute("tile", 16), lambda model: model.tile)
            self.max_len, self.table = 24, nn.Embedding(24, DIM)

        def forward(self, x):
            return super().forward(x + self.table(torch.arange(x.shape[1])))

    assert verdict(Table(True)).verdict == "violated"
    report = verdict(Table(False))
    assert report.verdict == "holds"
    assert "longer" not in report.not_tried
