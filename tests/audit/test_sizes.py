"""Sizes beyond the given inputs: crossed wherever a model holds them, or said."""

from functools import cache, partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

N, DIM, SIZE = 12, 16, 20
GLOBAL = 20


class Beyond(nn.Module):
    """A sum of what was before; beyond some size the faulty one reads one position ahead.

    The size is written as text, so that it is found where a test holds it and nowhere else.
    """

    def __init__(self, bad, hold=lambda model: None, size=lambda model: int("20")):
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


def reads_ahead(y, beyond):
    return F.pad(y, (0, 0, 0, 1))[:, 1:] if y.shape[1] > beyond else 0 * y


def by_default(y, chunk=SIZE):
    return reads_ahead(y, chunk)


def by_keyword(y, *, segment_k=SIZE):
    return reads_ahead(y, segment_k)


def by_global(y):
    return reads_ahead(y, GLOBAL)


def by_call(y):
    return by_default(y)


class Options:
    steps = SIZE


TABLE = {"steps": SIZE}
OBJECT = Options()
OBJECT.steps = SIZE


class Helper:
    def __init__(self, chunk=SIZE):
        self.chunk = chunk

    def __call__(self, y):
        return reads_ahead(y, self.chunk)


FUNCTIONS = {
    "default of a function": lambda y: by_default(y),
    "keyword of a function": lambda y: by_keyword(y),
    "global of a function": lambda y: by_global(y),
    "a function's function": lambda y: by_call(y),
    "partial": partial(by_default, chunk=SIZE),
    "cached": cache(by_default),
    "attribute of a class": lambda y: reads_ahead(y, Options.steps),
    "attribute of an object": lambda y: reads_ahead(y, OBJECT.steps),
    "entry of a table": lambda y: reads_ahead(y, TABLE["steps"]),
    "class": lambda y: Helper()(y),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("bad", [True, False])
def test_a_size_in_what_the_code_calls_is_crossed(kind, bad):
    class Calls(Beyond):
        def forward(self, x):
            y = self.linear(x)
            return y.cumsum(1) + (FUNCTIONS[kind](y) if bad else 0)

    report = verdict(Calls(bad, attribute("call", FUNCTIONS[kind])))
    assert report.verdict == ("violated" if bad else "holds")
    assert max(report.tried["lengths"]) > SIZE


class Methods(Beyond):
    @staticmethod
    def fixed(y, block=SIZE):
        return reads_ahead(y, block)

    def mixed(self, y, block=SIZE):
        return reads_ahead(y, block)

    @property
    def tile(self):
        return 20

    def forward(self, x):
        y = self.linear(x)
        ahead = {"fixed": self.fixed, "mixed": self.mixed, "tile": lambda y: reads_ahead(y, self.tile)}
        return y.cumsum(1) + (ahead[self.bad](y) if self.bad else 0)


@pytest.mark.parametrize("bad", ["fixed", "mixed", "tile", ""])
def test_a_size_in_any_method_is_crossed(bad):
    assert verdict(Methods(bad)).verdict == ("violated" if bad else "holds")


@pytest.mark.parametrize("bad", [True, False])
def test_a_product_of_sizes_is_crossed(bad):
    class Product(Beyond):
        def forward(self, x):
            y = self.linear(x)
            return y.cumsum(1) + (reads_ahead(y, self.cells * self.memories) if self.bad else 0)

    def hold(model):
        model.cells, model.memories = 16, 4

    assert verdict(Product(bad, hold)).verdict == ("violated" if bad else "holds")


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
    "n_steps": attribute("n_steps"),
    "max_steps": attribute("max_steps"),
    "time_step": attribute("time_step"),
    "top_len": attribute("top_len"),
    "seqlen_k": attribute("seqlen_k"),
    "head_len": attribute("head_len"),
    "depth": attribute("depth"),
    "offset": attribute("offset"),
    "input_len of the width": attribute("input_len"),
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


@pytest.mark.parametrize("name", ["vocab_size", "num_layers", "n_head", "pad_token_id", "top_k", "seed"])
def test_counts_and_ids_are_not_crossed(name):
    assert max(verdict(Beyond(False, attribute(name))).tried["lengths"]) == N


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
