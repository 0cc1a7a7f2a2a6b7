"""BERT: every position reads every position, and knows its own.

    relation    Full(); in a padded batch every item reads its own tokens only: Batch([Padding(length), ...])

    x_i       = norm(tokens[ids_i] + positions[i] + types[type_i])
    x         = norm(x + attention(x))          } in every layer: normalised last
    x         = norm(x + mlp(x))                }
    logits_i  = <norm(gelu(W x_i)), tokens[w]> + b_w      for each word w: the masked language model

Full attention is equivariant to every permutation of the positions; the absolute positions break that. The
numbers are those of `transformers.BertModel` and `BertForMaskedLM` on the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import checks
from erlangen.models.padded_batches import unpadded
from erlangen.models.pretrained import Pretrained
from erlangen.models.saved import Saved
from erlangen.nn import Attention
from erlangen.relations import Batch, Full, PerHead, Relation

RELATION = Full()
"""Self-attention (Definition 5)."""


@dataclass(frozen=True)
class BERTConfig:
    """Sizes of a BERT. `types` counts the kinds of segments; `head` says whether it predicts masked words.

    `relation` may be another one, for example a window; padding is taken out of it. `hidden` is the inner
    width of the networks (4 * width if not given).

    >>> BERTConfig(vocab_size=30522, context=512, layers=12, heads=12, width=768).relation
    Full()
    """

    vocab_size: int
    context: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    relation: Relation | PerHead = RELATION
    types: int = 2
    head: bool = True
    hidden: int | None = None
    norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        checks.fractions(self, "BERT")
        checks.counts(self, "BERT", "vocab_size", "context", "layers", "heads", "width", "types")
        checks.relation(self, "BERT")


class Block(nn.Module):
    """norm(x + attention(x)), then norm(x + mlp(x)): normalised last.

    >>> block = Block(BERTConfig(vocab_size=11, context=8, layers=1, heads=2, width=8))
    >>> y = block(torch.randn(2, 5, 8), RELATION)
    >>> y.shape, bool(y.mean(-1).abs().max() < 1e-6)
    (torch.Size([2, 5, 8]), True)
    """

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        hidden = 4 * config.width if config.hidden is None else config.hidden
        self.attention = Attention(
            config.width, config.heads, config.relation, bias=True, dropout=config.dropout
        )
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, relation: Relation | PerHead | Batch) -> Tensor:
        x = self.norm1(x + self.dropout(self.attention(x, relation=relation)))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Head(nn.Module):
    """The scores of all words at each position: <norm(gelu(W x_i)), words_w> + b_w.

    >>> head = Head(BERTConfig(vocab_size=11, context=8, layers=1, heads=2, width=8))
    >>> head(torch.randn(2, 5, 8), torch.randn(11, 8)).shape
    torch.Size([2, 5, 11])
    """

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x: Tensor, words: Tensor) -> Tensor:
        return F.linear(self.norm(F.gelu(self.transform(x))), words, self.bias)


@final
class BERT(Saved):
    """An encoder of text: ids (n,) or (batch, n) -> hidden states of the same shape x width.

    `attention_mask` has 1 at real tokens and 0 at padding, which nobody reads; `token_type_ids` name the
    segments (0 if not given). `logits` gives the scores of the words at each position.

    >>> import torch
    >>> model = BERT(BERT.Config(vocab_size=11, context=16, layers=2, heads=2, width=8)).eval()
    >>> ids = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7]])
    >>> mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    >>> model(ids, mask).shape, model.logits(ids, mask).shape
    (torch.Size([2, 4, 8]), torch.Size([2, 4, 11]))
    >>> alone = model(ids[0, :3])
    >>> torch.allclose(model(ids, mask)[0, :3], alone, atol=1e-6)      # padding changes nothing
    True
    """

    Config = BERTConfig

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.types = nn.Embedding(config.types, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.head = Head(config) if config.head else None
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    @property
    def relation(self) -> Relation | PerHead:
        """Which positions a position reads, in every layer, where there is no padding."""
        return self.config.relation

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The hidden states of the last layer."""
        if input_ids.dim() not in (1, 2):
            raise ShapeError(f"BERT takes ids of shape (n,) or (batch, n), got {tuple(input_ids.shape)}")
        n = input_ids.shape[-1]
        if n > self.config.context:
            raise SizeError(f"BERT has context={self.config.context}, but {n} tokens were given")
        relation = unpadded(self.relation, attention_mask, input_ids)
        types = self.types.weight[0] if token_type_ids is None else self.types(token_type_ids)
        x = self.dropout(self.norm(self.tokens(input_ids) + types + self.positions.weight[:n]))
        for block in self.blocks:
            x = block(x, relation)
        return x

    def logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        """The scores of all words at each position, (n, vocab) or (batch, n, vocab)."""
        if self.head is None:
            raise ParameterError("this BERT has head=False: it gives hidden states, but predicts no words")
        return self.head(self(input_ids, attention_mask, token_type_ids), self.tokens.weight)

    @classmethod
    def from_transformers(cls, source: Any, relation: Relation | PerHead = RELATION) -> Self:
        """A copy of a `BertModel` or `BertForMaskedLM`, live or from its checkpoint directory."""
        theirs = Pretrained(source, "bert", prefix="bert")
        theirs.only("hidden_act", "gelu")
        theirs.only("position_embedding_type", "absolute")
        theirs.only("is_decoder", False)
        theirs.only("add_cross_attention", False)
        theirs.only("tie_word_embeddings", True)
        head = "cls.predictions.bias" in theirs.tensors
        config = BERTConfig(
            vocab_size=theirs.option("vocab_size", 30522),
            context=theirs.option("max_position_embeddings", 512),
            layers=theirs.option("num_hidden_layers", 12),
            heads=theirs.option("num_attention_heads", 12),
            width=theirs.option("hidden_size", 768),
            dropout=theirs.alike("hidden_dropout_prob", "attention_probs_dropout_prob", default=0.1),
            relation=relation,
            types=theirs.option("type_vocab_size", 2),
            head=head,
            hidden=theirs.option("intermediate_size", 3072),
            norm_eps=theirs.option("layer_norm_eps", 1e-12),
        )
        state = {
            "tokens.weight": theirs.take("embeddings.word_embeddings.weight"),
            "positions.weight": theirs.take("embeddings.position_embeddings.weight"),
            "types.weight": theirs.take("embeddings.token_type_embeddings.weight"),
            **theirs.linear("norm", "embeddings.LayerNorm"),
        }
        state |= theirs.layers(config.layers, _NAMES, "encoder.layer")
        if head:
            state["head.bias"] = theirs.take("cls.predictions.bias")
            theirs.tied("cls.predictions.decoder.weight", state["tokens.weight"])
            theirs.tied("cls.predictions.decoder.bias", state["head.bias"])
            state |= theirs.linear("head.transform", "cls.predictions.transform.dense")
            state |= theirs.linear("head.norm", "cls.predictions.transform.LayerNorm")
        unused = ("pooler.", "cls.seq_relationship.", "embeddings.position_ids")
        return theirs.filled(cls(config), state, unused)


_NAMES = {
    "attention.Q": "attention.self.query",
    "attention.K": "attention.self.key",
    "attention.V": "attention.self.value",
    "attention.O": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm2": "output.LayerNorm",
}
"""Our names of a block's maps, and those of transformers."""
