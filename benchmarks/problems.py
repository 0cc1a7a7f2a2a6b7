"""The inputs of a case: tensors, the relation between them, and what the peers need to know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from erlangen.integrations.graphs import to_edge_index
from erlangen.relations import Bindable, Causal, FromMask, Full, Graph, Neighborhoods, Random, Window

SEED = 0
BLOCK = 64
"""The block size of the BigBird relation."""


@dataclass
class Problem:
    """One attention to compute: `inputs` are what every contender is called with.

    `kind` names the shape of the problem ("full", "causal", "window", "blocks", "irregular", "graph",
    "additive", "layer", "decode", "planning"); a peer looks at it to decide whether it can compute this.
    `pairs` counts related (query, key) pairs of all heads.
    """

    kind: str
    n: int
    heads: int
    dim: int
    relation: Bindable
    inputs: tuple[Tensor, ...]
    window: int | None = None
    table: Tensor | None = None
    """Of blocks: which block of keys each block of queries reads."""

    @cached_property
    def bound(self) -> Neighborhoods:
        return self.relation.on(self.n)  # pyright: ignore[reportReturnType]

    @cached_property
    def pairs(self) -> int:
        return self.bound.num_edges * self.heads

    @cached_property
    def mask(self) -> Tensor:
        """The dense mask, True = may read, in the four dimensions that keep SDPA on its fused path."""
        return torch.from_numpy(self.bound.dense())[None, None]

    @cached_property
    def edge_index(self) -> Tensor:
        """PyG's edges, sorted by target, its favourable order."""
        return to_edge_index(self.bound)

    @cached_property
    def _gradient(self) -> Tensor:
        like = self.inputs[0] if self.kind == "layer" else self.inputs[-1]
        torch.manual_seed(SEED + 1)
        return torch.randn_like(like, requires_grad=False)

    def upstream(self, training: bool) -> Tensor | None:
        """The gradient every contender is given for its output; None, and no graph, where none is trained."""
        for x in self.inputs:
            x.requires_grad_(training)
        return self._gradient if training else None

    def flops(self, training: bool) -> int | None:
        """Multiplications and additions on related pairs: two products forward, five more backward.

        The fifth product of the backward pass recomputes the scores, the usual count for attention that
        does not keep them. A layer adds its projections. None where no attention is computed.
        """
        if self.kind == "planning":
            return None
        pairs = self.heads * ((self.window or 0) + 1) if self.kind == "decode" else self.pairs
        scored = 2 if self.kind == "additive" else self.dim
        projected = 6 * self.n * (self.heads * self.dim) ** 2 if self.kind == "layer" else 0
        if training:
            return 2 * pairs * (4 * scored + 3 * self.dim) + 3 * projected
        return 2 * pairs * (scored + self.dim) + projected


def sequence(kind: str, n: int, window: int | None = None, heads: int = 8, dim: int = 64) -> Problem:
    """Queries, keys and values (1, heads, n, dim), one behind the other in memory."""
    generator = torch.Generator().manual_seed(SEED)
    q, k, v = (torch.randn(1, heads, n, dim, generator=generator) for _ in range(3))
    table = big_bird(n // BLOCK) if kind == "blocks" else None
    relation = _relation(kind, n, window, table)
    return Problem(kind, n, heads, dim, relation, (q, k, v), window, table)


def _relation(kind: str, n: int, window: int | None, table: Tensor | None) -> Bindable:
    if window is not None:
        return Window(lookback=window)
    if table is not None:
        return FromMask(np.kron(table.numpy(), np.ones((BLOCK, BLOCK), bool)))
    if kind == "irregular":
        return Random(max(1, round(0.023 * n)), seed=SEED)
    return {"full": Full(), "causal": Causal()}[kind]


def big_bird(blocks: int) -> Tensor:
    """Own and neighbouring blocks, the first two global both ways, and three random ones per row."""
    generator = torch.Generator().manual_seed(SEED)
    place = torch.arange(blocks)
    table = (place[:, None] - place[None, :]).abs() <= 1
    table[:2] = True
    table[:, :2] = True
    for row in range(blocks):
        table[row, torch.randperm(blocks, generator=generator)[:3]] = True
    return table


def decode(n: int, window: int, heads: int = 8, dim: int = 64) -> Problem:
    """One query against a store of n keys and values."""
    generator = torch.Generator().manual_seed(SEED)
    q = torch.randn(1, heads, 1, dim, generator=generator)
    k, v = (torch.randn(1, heads, n, dim, generator=generator) for _ in range(2))
    return Problem("decode", n, heads, dim, Window(lookback=window), (q, k, v), window)


def lengths(n: int, window: int) -> Callable[[], int]:
    """The length of the store at each step of a decoding loop that ends at n and starts again.

    More steps than any cache of bound relations holds, so that no contender meets a length it has just seen.
    """
    span = min(256, n - window)
    step = 0

    def following() -> int:
        nonlocal step
        step += 1
        return n - span + 1 + (step - 1) % span

    return following


def planning(n: int, window: int, heads: int = 8, dim: int = 64) -> Problem:
    """Tensors of the right shape and no memory: planning reads shapes alone."""
    hollow = torch.zeros(1).expand(1, heads, n, dim)
    return Problem("planning", n, heads, dim, Window(lookback=window), (hollow, hollow, hollow), window)


def graph(kind: str, n: int, degree: int, heads: int = 4, dim: int = 32) -> Problem:
    """Each node reads `degree` random nodes. Tensors lie as PyG keeps them, (nodes, heads, dim).

    kind "graph": inputs are q, k, v, seen as (1, heads, n, dim). "additive": the two halves of the scores of
    a GAT, (n, heads) each, and the values. "layer": node features and the weights of three projections.
    """
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    relation = Graph(Random(degree, seed=SEED).on(n).edges(), nodes=n)
    if kind == "graph":
        inputs = tuple(normal(n, heads, dim).transpose(0, 1)[None] for _ in range(3))
    elif kind == "additive":
        inputs = (normal(n, heads), normal(n, heads), normal(n, heads, dim))
    else:
        width = heads * dim
        inputs = (normal(n, width), *(normal(width, width) / width**0.5 for _ in range(3)))
    return Problem(kind, n, heads, dim, relation, inputs)
