"""The Sparse Transformer (Child et al.): two kinds of heads that together reach the whole past in two layers.

    relation    PerHead, half of the heads each, with stride l (and c summary columns for "fixed"):
      strided   Window(lookback=l)                 the l positions before
                Causal() & Dilated(l)              every l-th position before
      fixed     Causal() & Blocks(l)               the own block of l positions so far
                Causal() & Global(keys=...)        the last c positions of every block before

A row has about l keys near and n / l (fixed: c n / l) far: O(n^1.5) pairs at l = sqrt(n). Two layers reach
the whole past, for every n and l. Take j <= i.
  strided: let k be the first position >= j with (i - k) mod l = 0. Then k <= i and k - j < l: i reads k by
           the second head, and k reads j by the first.
  fixed:   if i and j share a block, i reads j. Otherwise the last position k of j's block is before i: i
           reads k by the second head, and k reads j by the first.
One layer does not: once l >= 2 and n >= l + 2, position l + 1 does not read 0 (fixed: l > c, n >= l + 1, l).
`erlangen.reach([relation] * 2).on(n) == Causal().on(n)` checks this at a size, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from erlangen.errors import ParameterError
from erlangen.models import checks
from erlangen.models.gpt import GPT, GPTConfig
from erlangen.models.saved import Saved
from erlangen.relations import Blocks, Causal, Dilated, Global, PerHead, Relation, Window, sizes


def strided(stride: int) -> tuple[Relation, Relation]:
    """The two heads of the strided pattern, for data with a period such as the rows of an image.

    >>> strided(4)
    (Window(lookback=4), Causal() & Dilated(step=4))
    """
    stride = sizes.count(stride, "strided(stride)", least=1)
    return Window(lookback=stride), Causal() & Dilated(stride)


def fixed(stride: int, context: int, summaries: int = 1) -> tuple[Relation, Relation]:
    """The two heads of the fixed pattern, for data without one, such as text.

    The last `summaries` positions of each block are read by everything after them.

    >>> fixed(4, context=12)
    (Causal() & Blocks(size=4), Causal() & Global(keys=range(3, 12, 4)))
    """
    stride = sizes.count(stride, "fixed(stride)", least=1)
    summaries = sizes.count(summaries, "fixed(summaries)", least=1)
    if summaries > stride:
        raise ParameterError(f"a block of {stride} positions has no {summaries} last ones")
    columns = [Global(keys=range(first, context, stride)) for first in range(stride - summaries, stride)]
    read: Relation = columns[0]
    for column in columns[1:]:
        read = read | column
    return Causal() & Blocks(stride), Causal() & read


@dataclass(frozen=True)
class SparseTransformerConfig:
    """Sizes of a Sparse Transformer; `pattern` is "strided" or "fixed", `stride` about sqrt(context).

    >>> SparseTransformerConfig(vocab_size=65, context=64, layers=2, heads=4, width=32, stride=8).pattern
    'strided'
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    stride: int
    pattern: str = "strided"
    summaries: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checks.fractions(self, "SparseTransformer")
        sizes.count(self.heads, "SparseTransformer.Config(heads)", least=1)
        if self.heads % 2:
            raise ParameterError(
                f"SparseTransformer.Config(heads={self.heads}): both patterns need as many, so an even number"
            )
        if self.pattern not in ("strided", "fixed"):
            raise ParameterError(
                f'SparseTransformer.Config(pattern) is "strided" or "fixed", got {self.pattern!r}'
            )
        _ = self.relation  # refuses strides and summaries outside their domain

    @property
    def relation(self) -> PerHead:
        """One half of the heads reads nearby, the other far."""
        if self.pattern == "strided":
            near, far = strided(self.stride)
        else:
            near, far = fixed(self.stride, self.context, self.summaries)
        return PerHead([near] * (self.heads // 2) + [far] * (self.heads // 2))


@final
class SparseTransformer(Saved):
    """A GPT over sparse heads: ids (n,) or (batch, n) -> logits (n, vocab) or (batch, n, vocab).

    >>> from erlangen.relations import Causal, reach
    >>> config = SparseTransformer.Config(
    ...     vocab_size=11, context=16, layers=2, heads=2, width=8, stride=4, pattern="fixed"
    ... )
    >>> model = SparseTransformer(config)
    >>> model.relation
    PerHead([Causal() & Blocks(size=4), Causal() & Global(keys=range(3, 16, 4))])
    >>> reach([model.relation]).on(16).num_edges, reach([model.relation] * 2).on(16) == Causal().on(16)
    (64, True)
    >>> model(torch.arange(9)).shape
    torch.Size([9, 11])
    """

    Config = SparseTransformerConfig

    def __init__(self, config: SparseTransformerConfig) -> None:
        super().__init__(config)
        self.gpt = GPT(
            GPTConfig(
                config.vocab_size,
                config.context,
                config.layers,
                config.heads,
                config.width,
                config.dropout,
                config.relation,
            )
        )

    @property
    def relation(self) -> PerHead:
        """Which positions each head reads, in every layer."""
        return self.config.relation

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of the next token at every position."""
        return self.gpt(ids)

    def generate(
        self,
        ids: Tensor,
        new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`ids` continued by `new_tokens` tokens, as `GPT.generate` does."""
        return self.gpt.generate(ids, new_tokens, temperature, top_k, generator)
