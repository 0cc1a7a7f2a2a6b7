"""Transformer: an encoder, and a decoder that reads it. Three relations:

    encoder    Full()      every source position reads every source position
    decoder    Causal()    a target position reads itself and the targets before it
    cross      Full()      every target position reads every source position: on source and target taken
                           together this is the complete bipartite relation, Bipartite(encoder=n, decoder=m)

    x         = x + attention(norm(x))                                        } encoder layers
    x         = x + mlp(norm(x))                                              }
    y         = y + attention(norm(y)); y = y + cross(norm(y), x)             } decoder layers
    y         = y + mlp(norm(y))                                              }
    logits_i  = head(norm(y_i)), which scores target i + 1

or, with `norm_first=False`, x = norm(x + attention(x)) and so on. A token comes in as sqrt(width) tokens[id]
plus the sinusoids of its position. The numbers are those of `torch.nn.Transformer` on the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import ParameterError, ShapeError
from erlangen.models import checks
from erlangen.models.padded_batches import unpadded
from erlangen.models.saved import Saved, fill
from erlangen.nn import Attention, KVCache
from erlangen.relations import Bindable, Causal, Full, Relation, sizes

ENCODER, DECODER, CROSS = Full(), Causal(), Full()
"""The three relations; the last one is from target positions to source positions."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of a Transformer with `layers` layers on either side.

    Without vocabularies (None, None) it takes and gives vectors, as `torch.nn.Transformer` does. `hidden` is
    the inner width of the networks (4 * width if not given).

    >>> TransformerConfig(source_vocab=20, target_vocab=30, layers=2, heads=4, width=64).norm_first
    True
    """

    source_vocab: int | None
    target_vocab: int | None
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    decoder_layers: int | None = None
    hidden: int | None = None
    activation: str = "relu"
    norm_first: bool = True
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        checks.fractions(self, "Transformer")
        checks.counts(self, "Transformer", "layers", "heads", "width")
        if (self.source_vocab is None) != (self.target_vocab is None):
            raise ParameterError(
                "Transformer.Config takes both vocabularies, or neither (vectors in and out)"
            )
        if self.width % 2:
            raise ParameterError(
                f"Transformer.Config(width) must be even (pairs of sinusoids), got {self.width}"
            )
        if self.activation not in _ACTIVATIONS:
            raise ParameterError(
                f"Transformer.Config(activation) is one of {', '.join(_ACTIVATIONS)}, got {self.activation!r}"
            )


class Layer(nn.Module):
    """Self-attention, in a decoder cross-attention, and a network, each with its residual and norm.

    >>> layer = Layer(TransformerConfig(None, None, layers=1, heads=2, width=8), DECODER, CROSS)
    >>> layer(torch.randn(2, 3, 8), DECODER, torch.randn(2, 5, 8), CROSS).shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, config: TransformerConfig, relation: Relation, cross: Relation | None) -> None:
        super().__init__()
        width, options = config.width, {"bias": True, "dropout": config.dropout}
        hidden = 4 * width if config.hidden is None else config.hidden
        self.norm_first, self.activation = config.norm_first, _ACTIVATIONS[config.activation]
        self.attention = Attention(width, config.heads, relation, **options)
        self.norm1 = nn.LayerNorm(width, eps=config.norm_eps)
        self.cross = None if cross is None else Attention(width, config.heads, cross, **options)
        self.norm2 = None if cross is None else nn.LayerNorm(width, eps=config.norm_eps)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.norm3 = nn.LayerNorm(width, eps=config.norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        relation: Bindable,
        memory: Tensor | None = None,
        cross: Bindable | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        x = self._add(x, self.norm1, lambda x: self.attention(x, relation=relation, cache=cache))
        if self.cross is not None and self.norm2 is not None:
            read = self.cross
            x = self._add(x, self.norm2, lambda x: read(x, memory, relation=cross))
        return self._add(x, self.norm3, lambda x: self.down(self.dropout(self.activation(self.up(x)))))

    def _add(self, x: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.norm_first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))


def sinusoids(start: int, stop: int, width: int) -> Tensor:
    """Positions as pairs sin(i / 10000^(2k / width)), cos(...): fixed, and defined at every position.

    >>> sinusoids(0, 2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequencies = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = torch.arange(start, stop)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


@final
class Transformer(Saved):
    """From a source sequence to a target sequence: (batch, n) and (batch, m) ids -> logits (batch, m, vocab).

    Row i of the logits sees the whole source and the targets 0 .. i. The masks are as in `nn.Transformer`:
    boolean, True at padding. A single pair of sequences may come without the batch dimension.

    >>> import torch
    >>> model = Transformer(Transformer.Config(9, 11, layers=1, heads=2, width=8)).eval()
    >>> model.relation
    {'encoder': Full(), 'decoder': Causal(), 'cross': Full()}
    >>> model(torch.zeros(2, 5, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long)).shape
    torch.Size([2, 3, 11])
    >>> model.generate(torch.zeros(2, 5, dtype=torch.long), 4, start=1).shape
    torch.Size([2, 4])
    """

    Config = TransformerConfig

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        decoder_layers = config.layers if config.decoder_layers is None else config.decoder_layers
        self.encoder = nn.ModuleList(Layer(config, ENCODER, None) for _ in range(config.layers))
        self.encoder_norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.decoder = nn.ModuleList(Layer(config, DECODER, CROSS) for _ in range(decoder_layers))
        self.decoder_norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
        self.dropout = nn.Dropout(config.dropout)
        self.source = self.target = self.head = None
        if config.source_vocab is not None and config.target_vocab is not None:
            self.source = nn.Embedding(config.source_vocab, config.width)
            self.target = nn.Embedding(config.target_vocab, config.width)
            self.head = nn.Linear(config.width, config.target_vocab)
            for embedding in (self.source, self.target):
                nn.init.normal_(embedding.weight, std=config.width**-0.5)

    @property
    def relation(self) -> dict[str, Relation]:
        """Which positions read which, in the three kinds of attention, where there is no padding."""
        return {"encoder": ENCODER, "decoder": DECODER, "cross": CROSS}

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (or vectors, without vocabularies) at every target position."""
        memory = self.encode(src, src_key_padding_mask)
        return self.decode(tgt, memory, src_key_padding_mask, tgt_key_padding_mask)

    def encode(self, src: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        """The vectors of the source positions, for `decode` to read."""
        x = self._vectors(src, self.source, "src")
        relation = unpadded(ENCODER, _real(src_key_padding_mask), x[..., 0], "src_key_padding_mask")
        for layer in self.encoder:
            x = layer(x, relation)
        return self.encoder_norm(x)

    def decode(
        self,
        tgt: Tensor,
        memory: Tensor,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """Logits (or vectors) at the target positions, which read the source's vectors `memory`."""
        y = self._vectors(tgt, self.target, "tgt")
        if memory.shape[:-2] != y.shape[:-2]:
            raise ShapeError(f"memory {tuple(memory.shape)} and tgt {tuple(y.shape)} are not as many items")
        relation = unpadded(DECODER, _real(tgt_key_padding_mask), y[..., 0], "tgt_key_padding_mask")
        return self._decode(y, memory, relation, self._cross(memory, src_key_padding_mask))

    def _cross(self, memory: Tensor, src_key_padding_mask: Tensor | None) -> Bindable:
        return unpadded(CROSS, _real(src_key_padding_mask), memory[..., 0], "src_key_padding_mask")

    def _decode(
        self,
        y: Tensor,
        memory: Tensor,
        relation: Bindable,
        cross: Bindable,
        caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        for layer, cache in zip(self.decoder, caches or [None] * len(self.decoder), strict=True):
            y = layer(y, relation, memory, cross, cache)
        y = self.decoder_norm(y)
        return y if self.head is None else self.head(y)

    @torch.no_grad()
    def generate(
        self,
        src: Tensor,
        new_tokens: int,
        start: int,
        end: int | None = None,
        src_key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        """The likeliest `new_tokens` targets one after the other, beginning after `start`, in eval mode.

        The past is kept in caches. After `end` an item is filled with `end`.
        """
        if self.head is None:
            raise ParameterError("generate needs vocabularies: this Transformer gives vectors")
        new_tokens = sizes.count(new_tokens, "generate(new_tokens)")
        with self.evaluating():
            memory = self.encode(src, src_key_padding_mask)
            cross = self._cross(memory, src_key_padding_mask)
            caches = [KVCache() for _ in self.decoder]
            fresh = src.new_full((*src.shape[:-1], 1), start)
            made: list[Tensor] = []
            for position in range(new_tokens):
                done = None if end is None or not made else fresh == end
                y = self._vectors(fresh, self.target, "tgt", position)
                fresh = self._decode(y, memory, DECODER, cross, caches).argmax(-1)
                fresh = fresh if done is None else fresh.masked_fill(done, end or 0)
                made.append(fresh)
        return torch.cat(made, dim=-1) if made else src[..., :0]

    @classmethod
    def from_torch(cls, source: nn.Transformer) -> Self:
        """A copy of a `torch.nn.Transformer`, from vectors to vectors; batches come first."""
        encoder, decoder = getattr(source, "encoder", None), getattr(source, "decoder", None)
        if not isinstance(encoder, nn.TransformerEncoder) or not isinstance(decoder, nn.TransformerDecoder):
            raise ParameterError(
                "from_torch takes an nn.Transformer with PyTorch's own encoder and decoder, "
                f"got {type(source).__name__} with {type(encoder).__name__} and {type(decoder).__name__}"
            )
        layer: Any = encoder.layers[0]
        activation = {F.relu: "relu", F.gelu: "gelu"}.get(layer.activation)
        if activation is None or layer.linear1.bias is None:
            raise ParameterError(
                "from_torch takes the activations relu and gelu, with biases; "
                f"got {layer.activation!r}, bias={layer.linear1.bias is not None}"
            )
        config = TransformerConfig(
            source_vocab=None,
            target_vocab=None,
            layers=len(encoder.layers),
            heads=source.nhead,
            width=source.d_model,
            dropout=layer.dropout.p,
            decoder_layers=len(decoder.layers),
            hidden=layer.linear1.out_features,
            activation=activation,
            norm_first=layer.norm_first,
            norm_eps=layer.norm1.eps,
        )
        state = {}
        for name, tensor in source.state_dict().items():
            name, tensor = _renamed(name), tensor.detach().clone()
            if "in_proj_" in name:
                place, _, kind = name.rpartition(".in_proj_")
                state |= {
                    f"{place}.{map}.{kind}": part for map, part in zip("QKV", tensor.chunk(3), strict=True)
                }
            else:
                state[name] = tensor
        model = cls(config)
        fill(model, state, type(source).__name__)
        return model.train(source.training)

    def _vectors(self, x: Tensor, embedding: nn.Embedding | None, what: str, start: int = 0) -> Tensor:
        if embedding is None:
            if x.dim() not in (2, 3) or x.shape[-1] != self.config.width:
                raise ShapeError(
                    f"this Transformer takes vectors: {what} (batch, n, {self.config.width}), "
                    f"got {tuple(x.shape)}"
                )
            return x
        if x.dim() not in (1, 2):
            raise ShapeError(f"{what} takes ids (n,) or (batch, n), got {tuple(x.shape)}")
        width = self.config.width
        positions = sinusoids(start, start + x.shape[-1], width).to(embedding.weight)
        return self.dropout(width**0.5 * embedding(x) + positions)


def _real(padding: Tensor | None) -> Tensor | None:
    """PyTorch marks the padding; a relation names what is read."""
    if padding is None:
        return None
    if padding.dtype != torch.bool:
        raise ShapeError(f"a key padding mask is boolean, True at padding; got {padding.dtype}")
    return ~padding


def _renamed(name: str) -> str:
    """Our name of a tensor of `nn.Transformer`.

    >>> _renamed("decoder.layers.0.multihead_attn.out_proj.bias"), _renamed("encoder.layers.1.norm2.weight")
    ('decoder.0.cross.O.bias', 'encoder.1.norm3.weight')
    """
    if name.startswith("encoder.layers."):
        name = name.replace(".norm2.", ".norm3.")  # the network's norm: an encoder layer has two
    for theirs, ours in (
        (".layers.", "."), (".self_attn.", ".attention."), (".multihead_attn.", ".cross."),
        (".out_proj.", ".O."), (".linear1.", ".up."), (".linear2.", ".down."),
        ("encoder.norm.", "encoder_norm."), ("decoder.norm.", "decoder_norm."),
    ):  # fmt: skip
        name = name.replace(theirs, ours)
    return name
