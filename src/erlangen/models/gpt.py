"""GPT: every position reads itself and the past.

    relation    Causal(): position i reads j <= i, so its output may be trained to be token i + 1

    x_i       = tokens[ids_i] + positions[i]
    x         = x + attention(norm(x))          } in every layer
    x         = x + mlp(norm(x))                }
    logits_i  = <norm(x_i), tokens[w]>          for each word w: one embedding for reading and writing

The numbers are those of GPT-2 (`transformers.GPT2LMHeadModel`) on the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import checks
from erlangen.models.pretrained import Pretrained
from erlangen.models.saved import Saved
from erlangen.nn import Attention, KVCache
from erlangen.relations import Causal, Empty, PerHead, Relation, sizes

RELATION = Causal()
"""Masked attention (Definition 7)."""
MOST_RUNS = 1 << 24
"""Whether a relation reads the future is looked at up to so many runs of keys: a second or two."""


@dataclass(frozen=True)
class GPTConfig:
    """Sizes of a GPT: `layers` blocks of `heads` heads on vectors of `width`; at most `context` tokens.

    `relation` may be any part of `Causal()`, for example a window of the past or one relation per head;
    `hidden` is the inner width of the networks (4 * width if not given).

    >>> GPTConfig(vocab_size=65, context=128, layers=4, heads=4, width=128).relation
    Causal()
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    relation: Relation | PerHead = RELATION
    hidden: int | None = None
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        checks.fractions(self, "GPT")
        checks.counts(self, "GPT", "vocab_size", "context", "layers", "heads", "width")
        checks.relation(self, "GPT")
        for member in dict.fromkeys(self.relation.grid()[0]):
            future = member - Causal()
            if future == Empty():
                continue
            if future.runs_needed(self.context, self.context) > MOST_RUNS:
                raise ParameterError(
                    f"GPT.Config(relation={member!r}) has too many runs on context={self.context} positions "
                    f"to see whether it reads the future; {member} & Causal() reads none anywhere"
                )
            ahead = future.on(self.context)
            if ahead.num_edges:
                query, key = ahead.edges()[0].tolist()
                raise ParameterError(
                    f"GPT.Config(relation={self.relation!r}) reads the future: position {query} reads "
                    f"{key}, so the next token could be copied; use {member} & Causal()"
                )


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): normalised first.

    >>> block = Block(GPTConfig(vocab_size=11, context=8, layers=1, heads=2, width=8))
    >>> block(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        hidden = 4 * config.width if config.hidden is None else config.hidden
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(
            config.width, config.heads, config.relation, bias=True, dropout=config.dropout
        )
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x), cache=cache))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


@final
class GPT(Saved):
    """A language model over the past: ids (n,) or (batch, n) -> logits (n, vocab) or (batch, n, vocab).

    Row i of the logits depends on tokens 0 .. i alone and scores the token at i + 1.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = GPT(GPT.Config(vocab_size=11, context=16, layers=2, heads=2, width=8)).eval()
    >>> model.relation, model(torch.tensor([[1, 2, 3]])).shape
    (Causal(), torch.Size([1, 3, 11]))
    >>> a, b = model(torch.tensor([1, 2, 3])), model(torch.tensor([1, 2, 9]))
    >>> torch.equal(a[:2], b[:2])                    # the past does not know the future
    True
    >>> model.generate(torch.tensor([[1, 2, 3]]), 4).shape
    torch.Size([1, 7])
    """

    Config = GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self._initialise()

    @property
    def relation(self) -> Relation | PerHead:
        """Which positions a position reads, in every layer."""
        return self.config.relation

    def _initialise(self) -> None:
        # 2 * layers terms are added to x; the smaller start keeps its variance from growing with depth.
        last = 0.02 / (2 * self.config.layers) ** 0.5
        for name, parameter in self.named_parameters():
            if name.endswith(("O.weight", "down.weight")):
                nn.init.normal_(parameter, std=last)
            elif name.endswith("weight") and "norm" not in name:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Logits of the next token at every position; with `caches`, one per layer, ids continue the past."""
        if ids.dim() not in (1, 2):
            raise ShapeError(f"GPT takes ids of shape (n,) or (batch, n), got {tuple(ids.shape)}")
        start = caches[0].position if caches else 0
        stop = start + ids.shape[-1]
        if stop > self.config.context:
            raise SizeError(f"GPT has context={self.config.context}, but {stop} tokens were given")
        x = self.dropout(self.tokens(ids) + self.positions.weight[start:stop])
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return F.linear(self.norm(x), self.tokens.weight)

    @torch.no_grad()
    def generate(
        self,
        ids: Tensor,
        new_tokens: int,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """`ids` (n,) or (batch, n) continued by `new_tokens` tokens, in eval mode.

        `temperature` 0 takes the likeliest token; else tokens are drawn from softmax(logits / temperature),
        among the `top_k` likeliest if given. The past is kept in caches as long as it fits the context; from
        then on each token is predicted from the last `context` tokens.
        """
        if ids.dim() not in (1, 2) or ids.shape[-1] == 0:
            raise ShapeError(f"generate continues ids (n,) or (batch, n) with n >= 1, got {tuple(ids.shape)}")
        new_tokens = sizes.count(new_tokens, "generate(new_tokens)")
        if temperature < 0:
            raise ParameterError(f"generate(temperature) must be at least 0, got {temperature}")
        if top_k is not None:
            top_k = min(sizes.count(top_k, "generate(top_k)", least=1), self.config.vocab_size)
        with self.evaluating():
            caches = [KVCache() for _ in self.blocks]
            fresh = ids
            for _ in range(new_tokens):
                if ids.shape[-1] <= self.config.context:
                    logits = self(fresh, caches)[..., -1, :]
                else:
                    logits = self(ids[..., -self.config.context :])[..., -1, :]
                fresh = _pick(logits, temperature, top_k, generator)
                ids = torch.cat([ids, fresh], dim=-1)
        return ids

    @classmethod
    def from_transformers(cls, source: Any, relation: Relation | PerHead = RELATION) -> Self:
        """A copy of a `GPT2LMHeadModel` or `GPT2Model`, live or from its checkpoint directory."""
        theirs = Pretrained(source, "gpt2", prefix="transformer")
        theirs.only("activation_function", "gelu_new", "gelu_pytorch_tanh")
        theirs.only("scale_attn_weights", True)
        theirs.only("scale_attn_by_inverse_layer_idx", False)
        theirs.only("add_cross_attention", False)
        theirs.only("tie_word_embeddings", True)
        config = GPTConfig(
            vocab_size=theirs.option("vocab_size", 50257),
            context=theirs.option("n_positions", 1024),
            layers=theirs.option("n_layer", 12),
            heads=theirs.option("n_head", 12),
            width=theirs.option("n_embd", 768),
            dropout=theirs.alike("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
            relation=relation,
            hidden=theirs.option("n_inner", None),
            norm_eps=theirs.option("layer_norm_epsilon", 1e-5),
        )
        state = {
            "tokens.weight": theirs.take("wte.weight"),
            "positions.weight": theirs.take("wpe.weight"),
            **theirs.linear("norm", "ln_f"),
        }
        theirs.tied("lm_head.weight", state["tokens.weight"])
        for i in range(config.layers):
            ours, block = f"blocks.{i}", f"h.{i}"
            state |= theirs.linear(f"{ours}.norm1", f"{block}.ln_1")
            state |= theirs.linear(f"{ours}.norm2", f"{block}.ln_2")
            # GPT-2 keeps its matrices transposed, and those of queries, keys and values side by side.
            weights = theirs.take(f"{block}.attn.c_attn.weight").T.chunk(3)
            biases = theirs.take(f"{block}.attn.c_attn.bias").chunk(3)
            for name, weight, bias in zip("QKV", weights, biases, strict=True):
                state |= {f"{ours}.attention.{name}.weight": weight, f"{ours}.attention.{name}.bias": bias}
            for name, other in (("attention.O", "attn.c_proj"), ("up", "mlp.c_fc"), ("down", "mlp.c_proj")):
                state[f"{ours}.{name}.weight"] = theirs.take(f"{block}.{other}.weight").T
                state[f"{ours}.{name}.bias"] = theirs.take(f"{block}.{other}.bias")
        return theirs.filled(cls(config), state, (".attn.bias", ".attn.masked_bias"))


def _pick(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    """The next token of every row, of shape (..., 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(top_k).values[..., -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)
