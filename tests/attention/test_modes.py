"""What is kept of a relation in one mode of PyTorch serves a call in every other."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.func import grad, jvp

from erlangen.attention import attend, attend_triples
from erlangen.attention.binding import clear_cache
from erlangen.attention.ternary_attention import packed
from erlangen.relations import Window, WindowSquared

X = torch.randn(1, 2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def plain(run):
    x = X.clone().requires_grad_()
    run(x).backward()
    return x.grad


def inference(run):
    with torch.inference_mode():
        run(X)


def twice(run):
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(run(x), x, create_graph=True)
    first.square().sum().backward()
    return first.detach()


def transformed(run):
    return grad(run)(X)


def forward(run):
    jvp(run, (X,), (X,))


MODES = [plain, inference, twice, transformed, forward]


@pytest.mark.parametrize(("first", "then"), list(product(MODES, MODES)))
@pytest.mark.parametrize("backend", ["edges", "tiles", "gather", "reference", "sdpa", "triples"])
def test_modes_in_every_order(backend, first, then) -> None:
    if backend == "sdpa" and {first, then} & {twice, forward}:
        pytest.skip("SDPA has no such derivatives, and says so")

    def run(x):
        if backend == "triples":
            return attend_triples(x, X, X, X, X, WindowSquared(2)).sin().sum()
        return attend(x, X, X, Window(2, 1), backend=backend).sin().sum()

    expected = plain(run)
    clear_cache()
    packed.cache_clear()
    first(run)
    found = then(run)
    if found is not None:
        torch.testing.assert_close(found, expected)
