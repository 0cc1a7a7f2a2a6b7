"""T5: an encoder and a decoder that know positions by their differences alone. Three relations:

    encoder    RelativeBias(table, relation=Full())                            a source reads every source
    decoder    RelativeBias(table, relation=Causal(), bidirectional=False)     a target reads the past
    cross      Full()                                                          a target reads every source

    alpha_ij  = softmax over j in N_i of (<q_i, k_j> + table[h, bucket(j - i)]), without a scale
    x         = x + attention(norm(x))                                        } encoder layers
    x         = x + mlp(norm(x))                                              }
    y         = y + attention(norm(y)); y = y + cross(norm(y), x)             } decoder layers
    y         = y + mlp(norm(y))                                              }
    logits_i  = <norm(y_i) / sqrt(width), tokens[w]>                            for each word w

with norm(x) = weight * x / sqrt(mean of x^2). One table serves all layers of the encoder, another one those
of the decoder; there are no absolute positions. On source and target taken together, the cross-attention is
the complete bipartite relation, Bipartite(encoder=n, decoder=m). The numbers are those of
`transformers.T5Model` and `T5ForConditionalGeneration` on the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.attention import attend
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import checks
from erlangen.models.padded_batches import unpadded
from erlangen.models.pretrained import Pretrained
from erlangen.models.saved import Saved
from erlangen.nn import KVCache, RelativeBias
from erlangen.relations import Causal, Full, Relation, sizes

ENCODER, DECODER, CROSS = Full(), Causal(), Full()
"""The three relations, of which the first two carry a learned bias."""


@dataclass(frozen=True)
class T5Config:
    """Sizes of a T5. The heads have `head_dim` dimensions (width / heads if not given), whatever the width.

    `gated` networks are (gelu(x A) * x B) C, as in T5 1.1; others relu(x A) C. `tied` says whether words are
    scored by their own embedding, `scaled` whether vectors are divided by sqrt(width) before. Decoding begins
    with the token `start`, which also fills what comes after `end`.

    >>> T5Config(vocab_size=32128, layers=6, heads=8, width=512).hidden_width
    2048
    """

    vocab_size: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    head_dim: int | None = None
    hidden: int | None = None
    decoder_layers: int | None = None
    gated: bool = False
    buckets: int = 32
    max_distance: int = 128
    tied: bool = True
    scaled: bool = True
    start: int = 0
    end: int | None = 1
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        checks.fractions(self, "T5")
        checks.counts(self, "T5", "vocab_size", "layers", "heads", "width")
        if self.head_dim is None and self.width % self.heads:
            raise ParameterError(
                f"T5.Config(width={self.width}) is not a multiple of heads={self.heads}; give head_dim"
            )

    @property
    def head_width(self) -> int:
        """The dimension of a head."""
        return self.width // self.heads if self.head_dim is None else self.head_dim

    @property
    def hidden_width(self) -> int:
        """The inner width of the networks, 4 * width if not given."""
        return 4 * self.width if self.hidden is None else self.hidden


Read = tuple[Tensor, Tensor]
"""Keys and values, (..., heads, length, head width) each."""


class Attention(nn.Module):
    """Attention without a scale, softmax over N_i of (<q_i, k_j> + bias): the start of Q makes up for it.

    >>> attention = Attention(T5Config(vocab_size=11, layers=1, heads=2, width=8, head_dim=3))
    >>> x = torch.randn(2, 5, 8)
    >>> attention(x, attention.read(x), DECODER).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        width, inner = config.width, config.heads * config.head_width
        self.heads, self.dropout = config.heads, config.dropout
        self.Q, self.K, self.V = (nn.Linear(width, inner, bias=False) for _ in range(3))
        self.O = nn.Linear(inner, width, bias=False)
        nn.init.normal_(self.Q.weight, std=(width * config.head_width) ** -0.5)
        nn.init.normal_(self.K.weight, std=width**-0.5)
        nn.init.normal_(self.V.weight, std=width**-0.5)
        nn.init.normal_(self.O.weight, std=inner**-0.5)

    def read(self, source: Tensor) -> Read:
        """The keys and values of a source."""
        return self._split(self.K(source)), self._split(self.V(source))

    def forward(self, x: Tensor, read: Read, relation: Any) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        h = attend(self._split(self.Q(x)), *read, relation, scale=1.0, dropout=dropout)
        return self.O(h.transpose(-3, -2).flatten(-2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


class Network(nn.Module):
    """relu(x A) C, or gated (gelu(x A) * x B) C; applied to each position by itself.

    >>> Network(T5Config(vocab_size=11, layers=1, heads=2, width=8, gated=True))(torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        width, hidden = config.width, config.hidden_width
        self.up = nn.Linear(width, hidden, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False) if config.gated else None
        self.down = nn.Linear(hidden, width, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        for linear in (self.up, self.gate, self.down):
            if linear is not None:
                nn.init.normal_(linear.weight, std=linear.in_features**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        h = F.relu(h) if self.gate is None else F.gelu(h, approximate="tanh") * self.gate(x)
        return self.down(self.dropout(h))


class Layer(nn.Module):
    """Self-attention, in a decoder cross-attention, and a network: x + part(norm(x)) one after the other.

    >>> layer = Layer(T5Config(vocab_size=11, layers=1, heads=2, width=8), decoder=False)
    >>> layer(torch.randn(2, 5, 8), ENCODER).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, config: T5Config, decoder: bool) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config)
        self.norm2 = nn.RMSNorm(config.width, eps=config.norm_eps) if decoder else None
        self.cross = Attention(config) if decoder else None
        self.norm3 = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.network = Network(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        relation: Any,
        memory: Read | None = None,
        cross: Any = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        normed = self.norm1(x)
        read = self.attention.read(normed)
        # With a cache the queries are the last of all positions so far: both relation and bias know that.
        read = read if cache is None else cache.append(*read)
        x = x + self.dropout(self.attention(normed, read, relation))
        if self.cross is not None and self.norm2 is not None and memory is not None:
            x = x + self.dropout(self.cross(self.norm2(x), memory, cross))
        return x + self.dropout(self.network(self.norm3(x)))


@final
class T5(Saved):
    """From text to text: source ids (batch, n) and target ids (batch, m) -> logits (batch, m, vocab).

    The masks have 1 at real tokens and 0 at padding, which nobody reads. Row i of the logits sees the whole
    source and the targets 0 .. i, and scores target i + 1.

    >>> import torch
    >>> model = T5(T5.Config(vocab_size=11, layers=2, heads=2, width=8)).eval()
    >>> model.relation["decoder"]
    RelativeBias(table=<2 x 32 learned numbers>, bidirectional=False, max_distance=128, relation=Causal())
    >>> source = torch.tensor([[2, 3, 4, 5], [6, 7, 0, 0]])
    >>> mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    >>> model(source, torch.tensor([[0, 2], [0, 3]]), mask).shape
    torch.Size([2, 2, 11])
    >>> model.generate(source, 3, mask).shape
    torch.Size([2, 3])
    """

    Config = T5Config

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        decoder_layers = config.layers if config.decoder_layers is None else config.decoder_layers
        self.tokens = nn.Embedding(config.vocab_size, config.width)
        distances = (config.heads, config.buckets, config.max_distance)
        self.encoder_bias = RelativeBias(*distances)
        self.encoder = nn.ModuleList(Layer(config, decoder=False) for _ in range(config.layers))
        self.encoder_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.decoder_bias = RelativeBias(*distances, bidirectional=False)
        self.decoder = nn.ModuleList(Layer(config, decoder=True) for _ in range(decoder_layers))
        self.decoder_norm = nn.RMSNorm(config.width, eps=config.norm_eps)
        self.head = None if config.tied else nn.Linear(config.width, config.vocab_size, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        for bias in (self.encoder_bias, self.decoder_bias):
            nn.init.normal_(bias.table, std=config.width**-0.5)

    @property
    def relation(self) -> dict[str, Relation | Any]:
        """Which positions read which, in the three kinds of attention, where there is no padding."""
        return {
            "encoder": self.encoder_bias(ENCODER),
            "decoder": self.decoder_bias(DECODER),
            "cross": CROSS,
        }

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """The scores of the next word at every target position."""
        memory = self.encode(input_ids, attention_mask)
        return self.logits(self.decode(decoder_input_ids, memory, attention_mask, decoder_attention_mask))

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """The vectors of the source, (batch, n, width)."""
        relation = self.encoder_bias(unpadded(ENCODER, attention_mask, _ids(input_ids)))
        x = self.dropout(self.tokens(input_ids))
        for layer in self.encoder:
            x = layer(x, relation)
        return self.dropout(self.encoder_norm(x))

    def decode(
        self,
        decoder_input_ids: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
    ) -> Tensor:
        """The vectors of the targets, (batch, m, width), that read the source's vectors `memory`."""
        if memory.shape[:-2] != decoder_input_ids.shape[:-1]:
            raise ShapeError(
                f"memory {tuple(memory.shape)} and targets {tuple(decoder_input_ids.shape)} are "
                "not as many items"
            )
        relation = unpadded(
            DECODER, decoder_attention_mask, _ids(decoder_input_ids), "decoder_attention_mask"
        )
        cross = unpadded(CROSS, attention_mask, memory[..., 0])
        return self._decode(decoder_input_ids, self._read(memory), relation, cross)

    def logits(self, y: Tensor) -> Tensor:
        """The scores of all words, from the vectors that `decode` gives."""
        y = y * self.config.width**-0.5 if self.config.scaled else y
        return F.linear(y, self.tokens.weight if self.head is None else self.head.weight)

    @torch.no_grad()
    def generate(self, input_ids: Tensor, new_tokens: int, attention_mask: Tensor | None = None) -> Tensor:
        """The likeliest targets one after the other, at most `new_tokens`, without `start`; in eval mode.

        The past is kept in caches, and the source is read once. It ends early when all items have.
        """
        new_tokens = sizes.count(new_tokens, "generate(new_tokens)")
        with self.evaluating():
            memory = self._read(self.encode(input_ids, attention_mask))
            cross = unpadded(CROSS, attention_mask, input_ids)
            caches = [KVCache() for _ in self.decoder]
            fresh = input_ids.new_full((*input_ids.shape[:-1], 1), self.config.start)
            done = torch.zeros_like(fresh, dtype=torch.bool)
            made = [fresh[..., :0]]
            while len(made) <= new_tokens and not done.all():
                fresh = self.logits(self._decode(fresh, memory, DECODER, cross, caches)).argmax(-1)
                fresh = fresh.masked_fill(done, self.config.start)
                made.append(fresh)
                if self.config.end is not None:
                    done = done | (fresh == self.config.end)
        return torch.cat(made, dim=-1)

    def _read(self, memory: Tensor) -> list[Read]:
        """The keys and values of the source for every decoder layer."""
        return [layer.cross.read(memory) for layer in self.decoder]  # type: ignore[union-attr]

    def _decode(
        self,
        ids: Tensor,
        memory: list[Read],
        relation: Any,
        cross: Any,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        weighted = self.decoder_bias(relation)
        y = self.dropout(self.tokens(ids))
        for layer, read, cache in zip(self.decoder, memory, caches or [None] * len(memory), strict=True):
            y = layer(y, weighted, read, cross, cache)
        return self.dropout(self.decoder_norm(y))

    @classmethod
    def from_transformers(cls, source: Any) -> Self:
        """A copy of a `T5Model` or `T5ForConditionalGeneration`, live or from its checkpoint directory."""
        theirs = Pretrained(source, "t5", prefix="transformer")
        kind = theirs.only("feed_forward_proj", "relu", "gated-gelu")
        theirs.only("is_decoder", False)
        words = theirs.take("shared.weight")
        head = theirs.tensors.get("lm_head.weight")
        tied = head is None or torch.equal(head, words)
        start = theirs.option("decoder_start_token_id", None)
        end = theirs.option("eos_token_id", 1)
        layers = theirs.option("num_layers", 6)
        config = T5Config(
            vocab_size=len(words),
            layers=layers,
            heads=theirs.option("num_heads", 8),
            width=theirs.option("d_model", 512),
            dropout=theirs.option("dropout_rate", 0.1),
            head_dim=theirs.option("d_kv", 64),
            hidden=theirs.option("d_ff", 2048),
            decoder_layers=theirs.option("num_decoder_layers", None) or layers,
            gated=kind == "gated-gelu",
            buckets=theirs.option("relative_attention_num_buckets", 32),
            max_distance=theirs.option("relative_attention_max_distance", 128),
            tied=tied,
            scaled=theirs.option("scale_decoder_outputs", theirs.option("tie_word_embeddings", True)),
            start=theirs.option("pad_token_id", 0) if start is None else start,
            end=end if end is None or isinstance(end, int) else end[0],
            norm_eps=theirs.option("layer_norm_epsilon", 1e-6),
        )
        state = {"tokens.weight": words, **({} if tied else theirs.linear("head", "lm_head"))}
        theirs.tied("encoder.embed_tokens.weight", words)
        theirs.tied("decoder.embed_tokens.weight", words)
        for side, count, attentions in (
            ("encoder", layers, ["SelfAttention"]),
            ("decoder", config.decoder_layers or layers, ["SelfAttention", "EncDecAttention"]),
        ):
            table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
            state[f"{side}_bias.table"] = theirs.take(table).T
            state |= theirs.linear(f"{side}_norm", f"{side}.final_layer_norm")
            for i in range(count):
                ours, block = f"{side}.{i}", f"{side}.block.{i}.layer"
                for place, (name, attention) in enumerate(
                    zip(("attention", "cross"), attentions, strict=False)
                ):
                    state |= theirs.linear(f"{ours}.norm{place + 1}", f"{block}.{place}.layer_norm")
                    for letter in "QKVO":
                        state |= theirs.linear(
                            f"{ours}.{name}.{letter}", f"{block}.{place}.{attention}.{letter.lower()}"
                        )
                last = f"{block}.{len(attentions)}"
                state |= theirs.linear(f"{ours}.norm3", f"{last}.layer_norm")
                state |= theirs.linear(f"{ours}.network.down", f"{last}.DenseReluDense.wo")
                if config.gated:
                    state |= theirs.linear(f"{ours}.network.up", f"{last}.DenseReluDense.wi_0")
                    state |= theirs.linear(f"{ours}.network.gate", f"{last}.DenseReluDense.wi_1")
                else:
                    state |= theirs.linear(f"{ours}.network.up", f"{last}.DenseReluDense.wi")
        unused = ("lm_head.weight", "EncDecAttention.relative_attention_bias.weight")
        return theirs.filled(cls(config), state, unused)


def _ids(ids: Tensor) -> Tensor:
    if ids.dim() not in (1, 2):
        raise ShapeError(f"T5 takes ids of shape (n,) or (batch, n), got {tuple(ids.shape)}")
    return ids
