"""Unlimiformer: a decoder that reads an input of any length, in each head only the k states nearest to it.

    relation    Nearest(k): of all states of the encoder, query i of a head reads those with the k highest
                scores. It depends on the data: every input, layer, head and position has its own
    encoder     Full() within chunks of `chunk` tokens that overlap by half; of each the middle is kept
    decoder     Causal() among its own positions

    score_ij  = <Q x_i, K s_j> = <K^T Q x_i, s_j>      so the states s themselves are searched, in every head
    h_i       = V (sum over the k nearest j of softmax_j(score_ij / sqrt(head dim)) s_j)

Neither keys nor values are ever formed for all states: what a head needs is found by inner products with
the states, and what it reads is mapped by V afterwards. The cost of reading is that of k states.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.attention import attend
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import checks
from erlangen.models.saved import Saved
from erlangen.nn import Attention, KVCache
from erlangen.relations import Causal, Full, Nearest


@dataclass(frozen=True)
class UnlimiformerConfig:
    """Sizes: `layers` of `heads` heads on vectors of `width`, in the encoder and in the decoder.

    The encoder reads `chunk` tokens at a time, the decoder writes at most `context`; each of its heads reads
    the `k` nearest states. `index` is how they are looked for, see `Nearest`.

    >>> UnlimiformerConfig(vocab_size=9, chunk=64, context=16, layers=2, heads=2, width=32).k
    16
    """

    vocab_size: int
    chunk: int
    context: int
    layers: int
    heads: int
    width: int
    k: int = 16
    dropout: float = 0.0
    index: str = "exact"

    def __post_init__(self) -> None:
        checks.fractions(self, "Unlimiformer")
        checks.counts(self, "Unlimiformer", "vocab_size", "chunk", "context", "layers", "heads", "width", "k")
        if self.width % self.heads:
            raise ParameterError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.chunk % 4:
            raise ParameterError(f"chunk={self.chunk} must be a multiple of 4: half of it overlaps")


class NearestAttention(nn.Module):
    """Cross-attention in which every query and head reads the k states with its highest scores.

    The parameters are those of `nn.Attention` with a context, and so are the numbers where k is at least the
    number of states.

    >>> layer = NearestAttention(8, heads=2, relation=Nearest(3))
    >>> layer(torch.randn(1, 4, 8), torch.randn(1, 1000, 8)).shape
    torch.Size([1, 4, 8])
    """

    def __init__(self, width: int, heads: int, relation: Nearest, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.relation, self.dropout = heads, relation, dropout
        self.Q = nn.Linear(width, width, bias=False)
        self.K = nn.Linear(width, width, bias=False)
        self.V = nn.Linear(width, width, bias=False)
        self.O = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, states: Tensor) -> Tensor:
        """`x` (batch, n, width) reads `states` (batch, length, width)."""
        q = self.Q(x).unflatten(-1, (self.heads, -1))
        to_state, from_state = (linear.weight.unflatten(0, (self.heads, -1)) for linear in (self.K, self.V))
        asked = torch.einsum("bnhd,hdw->bhnw", q, to_state)
        found = states[:, None]  # one head of keys that are also the values, for all heads of queries
        read = attend(
            asked,
            found,
            found,
            self.relation,
            scale=1 / sqrt(q.shape[-1]),
            dropout=self.dropout if self.training else 0.0,
        )
        return self.O(torch.einsum("bhnw,hdw->bnhd", read, from_state).flatten(-2))


class Block(nn.Module):
    """x + attention(norm(x)); in a decoder x + what it reads of the states; then x + mlp(norm(x))."""

    def __init__(self, config: UnlimiformerConfig, relation: Full | Causal, nearest: Nearest | None) -> None:
        super().__init__()
        width, dropout = config.width, config.dropout
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.attention = Attention(width, config.heads, relation, dropout=dropout)
        self.reading = None if nearest is None else NearestAttention(width, config.heads, nearest, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropped = nn.Dropout(dropout)

    def forward(self, x: Tensor, states: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        x = x + self.dropped(self.attention(self.norm1(x), cache=cache))
        if self.reading is not None and states is not None:
            x = x + self.dropped(self.reading(self.norm2(x), states))
        return x + self.dropped(self.mlp(self.norm3(x)))


def chunks(length: int, chunk: int) -> list[tuple[int, int, int]]:
    """Where chunks start, and the positions [first, last) that each keeps: its middle half, and the ends.

    So every position is kept once, with at least a quarter of a chunk on both sides where there is as much.

    >>> chunks(10, 4)
    [(0, 0, 3), (2, 3, 5), (4, 5, 7), (6, 7, 10)]
    >>> chunks(3, 4)
    [(0, 0, 3)]
    """
    starts = [*range(0, max(length - chunk, 0), chunk // 2), max(length - chunk, 0)]
    cuts = [0, *(start + chunk // 4 for start in starts[1:]), length]
    return list(zip(starts, cuts[:-1], cuts[1:], strict=True))


@final
class Unlimiformer(Saved):
    """An encoder-decoder for inputs of any length: source (batch, n), target (batch, m) -> (batch, m, vocab).

    Row i of the logits depends on the whole source and on target tokens 0 .. i, and scores token i + 1.

    >>> model = Unlimiformer(
    ...     Unlimiformer.Config(vocab_size=9, chunk=8, context=5, layers=1, heads=2, width=8, k=4)
    ... ).eval()
    >>> model(torch.randint(9, (2, 1000)), torch.randint(9, (2, 5))).shape
    torch.Size([2, 5, 9])
    >>> model.relation, model.encoder[0].attention.relation, model.decoder[0].attention.relation
    (Nearest(k=4), Full(), Causal())
    """

    Config = UnlimiformerConfig

    def __init__(self, config: UnlimiformerConfig) -> None:
        super().__init__(config)
        nearest = Nearest(config.k, config.index)
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.places = nn.Embedding(config.chunk, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.encoder = nn.ModuleList(Block(config, Full(), None) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Block(config, Causal(), nearest) for _ in range(config.layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        for table in (self.tokens, self.places, self.positions):
            nn.init.normal_(table.weight, std=config.width**-0.5)

    @property
    def relation(self) -> Nearest:
        return Nearest(self.config.k, self.config.index)

    def encode(self, source: Tensor) -> Tensor:
        """The states (batch, n, width) of a source (batch, n), read chunk by chunk."""
        if source.dim() != 2 or source.shape[1] == 0:
            raise ShapeError(f"source must be tokens of shape (batch, n), got {tuple(source.shape)}")
        size = self.config.chunk
        kept = []
        for start, first, last in chunks(source.shape[1], size):
            ids = source[:, start : start + size]
            x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
            for block in self.encoder:
                x = block(x)
            kept.append(x[:, first - start : last - start])
        return self.encoder_norm(torch.cat(kept, dim=1))

    def decode(self, states: Tensor, target: Tensor, caches: list[KVCache] | None = None) -> Tensor:
        """Logits (batch, m, vocab) of a target (batch, m), or of what follows what the caches hold."""
        if target.dim() != 2 or target.shape[0] != states.shape[0]:
            raise ShapeError(f"target must be ({states.shape[0]}, m), got {tuple(target.shape)}")
        past = caches[0].position if caches else 0
        if past + target.shape[1] > self.config.context:
            raise SizeError(
                f"the decoder writes {self.config.context} tokens at most, got {past + target.shape[1]}"
            )
        x = self.tokens(target) + self.positions.weight[past : past + target.shape[1]]
        for number, block in enumerate(self.decoder):
            x = block(x, states, None if caches is None else caches[number])
        return F.linear(self.decoder_norm(x), self.tokens.weight)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.decode(self.encode(source), target)

    @torch.no_grad()
    def generate(self, source: Tensor, target: Tensor, new_tokens: int) -> Tensor:
        """The target (batch, m), continued by `new_tokens`, each the most probable one."""
        caches = [KVCache() for _ in self.decoder]
        states, seen = self.encode(source), 0
        for _ in range(new_tokens):
            logits = self.decode(states, target[:, seen:], caches)
            seen = target.shape[1]
            target = torch.cat([target, logits[:, -1:].argmax(-1)], dim=1)
        return target
