"""ViT: an image as a sequence of patches, and a class token that is read out.

    relation over the patches, which are numbered in reading order (row by row):
        Full()                 every patch reads every patch: the published ViT, and the default
        Window(lookback=k)     strided: a patch reads itself and the k before it, as the paper describes ViT
        Grid((h, w), r)        a 2-D window: a patch reads the (2r+1) x (2r+1) patches around it
    the class token, at position 0, reads all patches and all read it:   | Global(keys=[0], queries=[0])

    x         = [class token, E patch_1, ..., E patch_n] + positions
    x         = x + attention(norm(x))          } in every layer
    x         = x + mlp(norm(x))                }
    logits    = head(norm(x)_0)

The stride of the published ViT is in cutting the patches, not in its attention. The numbers are those of
`transformers.ViTModel` and `ViTForImageClassification` on the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import checks
from erlangen.models.pretrained import Pretrained
from erlangen.models.saved import Saved
from erlangen.nn import Attention
from erlangen.relations import FromMask, Full, Global, PerHead, Relation

RELATION = Full()
"""Self-attention (Definition 5) over the patches."""


@dataclass(frozen=True)
class ViTConfig:
    """Sizes of a ViT on square images, cut into square patches; `relation` relates patches to patches.

    `classes` None makes a model without a head, for its `features` alone. `hidden` is the inner width of the
    networks (4 * width if not given).

    >>> from erlangen.relations import Grid
    >>> config = ViTConfig(image_size=8, patch_size=2, channels=1, layers=2, heads=2, width=8, classes=10)
    >>> config.patches, config.relation
    (16, Full())
    """

    image_size: int
    patch_size: int
    channels: int
    layers: int
    heads: int
    width: int
    classes: int | None
    relation: Relation | PerHead = RELATION
    dropout: float = 0.0
    hidden: int | None = None
    norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        checks.fractions(self, "ViT")
        checks.counts(self, "ViT", "image_size", "patch_size", "channels", "layers", "heads", "width")
        if self.image_size % self.patch_size:
            raise ParameterError(
                f"ViT.Config: patches of {self.patch_size} pixels do not tile an image of {self.image_size}"
            )
        checks.relation(self, "ViT")

    @property
    def patches(self) -> int:
        """The number of patches."""
        return (self.image_size // self.patch_size) ** 2


def with_class_token(relation: Relation | PerHead, patches: int) -> Relation | PerHead:
    """A relation of patches, moved up by one position to make room for a class token that reads and is read.

    Relations that look the same from every position stay as they are written; others become their mask.

    >>> from erlangen.relations import Grid, Window
    >>> with_class_token(Full(), 16), with_class_token(Window(lookback=2), 16)
    (Full(), Window(lookback=2) | Global(keys=range(0, 1), queries=range(0, 1)))
    >>> with_class_token(Grid((2, 2), 0), 4).on(5).dense().astype(int).tolist()
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 0, 0, 0, 1]]
    """
    if relation.axes:
        return PerHead([with_class_token(member, patches) for member in relation.grid()[0]])
    single = relation.at()
    token = Global(keys=[0], queries=[0])
    mask = np.zeros((patches + 1, patches + 1), bool)
    mask[1:, 1:] = single.on(patches).dense()
    moved = FromMask(mask)
    try:
        same = (single - token).on(patches + 1) == moved.on(patches + 1)
    except SizeError:  # a relation of exactly so many patches
        same = False
    return (single if same else moved) | token


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): normalised first.

    >>> block = Block(ViTConfig(8, 2, 1, layers=1, heads=2, width=8, classes=3), RELATION)
    >>> block(torch.randn(2, 17, 8)).shape
    torch.Size([2, 17, 8])
    """

    def __init__(self, config: ViTConfig, relation: Relation | PerHead) -> None:
        super().__init__()
        hidden = 4 * config.width if config.hidden is None else config.hidden
        self.norm1 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.attention = Attention(config.width, config.heads, relation, bias=True, dropout=config.dropout)
        self.norm2 = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.up = nn.Linear(config.width, hidden)
        self.down = nn.Linear(hidden, config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


@final
class ViT(Saved):
    """A classifier of images: (batch, channels, size, size) -> logits (batch, classes).

    >>> import torch
    >>> from erlangen.relations import Grid, Window
    >>> sizes = dict(image_size=8, patch_size=2, channels=1, layers=2, heads=2, width=8, classes=10)
    >>> images = torch.randn(3, 1, 8, 8)
    >>> for relation in (Full(), Window(lookback=4), Grid((4, 4), 1)):
    ...     model = ViT(ViT.Config(**sizes, relation=relation))
    ...     print(model(images).shape, model.relation.on(17).num_edges)
    torch.Size([3, 10]) 289
    torch.Size([3, 10]) 103
    torch.Size([3, 10]) 133
    """

    Config = ViTConfig

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        size = config.patch_size
        self.patches = nn.Conv2d(config.channels, config.width, kernel_size=size, stride=size)
        self.token = nn.Parameter(torch.empty(config.width))
        self.positions = nn.Parameter(torch.empty(config.patches + 1, config.width))
        # Written as a mask along the way, so only after positions of which there are as many.
        self.relation = with_class_token(config.relation, config.patches)
        """Which tokens (the class token, then the patches) a token reads, in every layer."""
        self.blocks = nn.ModuleList(Block(config, self.relation) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.head = None if config.classes is None else nn.Linear(config.width, config.classes)
        self.dropout = nn.Dropout(config.dropout)
        for parameter in (self.token, self.positions):
            nn.init.trunc_normal_(parameter, std=0.02)

    def features(self, images: Tensor) -> Tensor:
        """The vectors of the class token and the patches, (batch, 1 + patches, width), normalised."""
        size, channels = self.config.image_size, self.config.channels
        if images.dim() != 4 or images.shape[1:] != (channels, size, size):
            raise ShapeError(
                f"ViT takes images (batch, {channels}, {size}, {size}), got {tuple(images.shape)}"
            )
        patches = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(images), 1, -1), patches], dim=1)
        x = self.dropout(x + self.positions)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of the classes, read from the class token."""
        if self.head is None:
            raise ParameterError("this ViT has classes=None, so no head; use its features(images)")
        return self.head(self.features(images)[:, 0])

    @classmethod
    def from_transformers(cls, source: Any, relation: Relation | PerHead = RELATION) -> Self:
        """A copy of a `ViTForImageClassification` or `ViTModel`, live or from its checkpoint directory."""
        theirs = Pretrained(source, "vit", prefix="vit")
        theirs.tensors = {_renamed(name): tensor for name, tensor in theirs.tensors.items()}
        theirs.only("hidden_act", "gelu")
        theirs.only("qkv_bias", True)
        head = "classifier.weight" in theirs.tensors
        config = ViTConfig(
            image_size=theirs.option("image_size", 224),
            patch_size=theirs.option("patch_size", 16),
            channels=theirs.option("num_channels", 3),
            layers=theirs.option("num_hidden_layers", 12),
            heads=theirs.option("num_attention_heads", 12),
            width=theirs.option("hidden_size", 768),
            classes=len(theirs.tensors["classifier.weight"]) if head else None,
            relation=relation,
            dropout=theirs.alike("hidden_dropout_prob", "attention_probs_dropout_prob", default=0.0),
            hidden=theirs.option("intermediate_size", 3072),
            norm_eps=theirs.option("layer_norm_eps", 1e-12),
        )
        state = {
            "token": theirs.take("embeddings.cls_token").flatten(),
            "positions": theirs.take("embeddings.position_embeddings").squeeze(0),
            **theirs.linear("patches", "embeddings.patch_embeddings.projection"),
            **theirs.linear("norm", "layernorm"),
            **(theirs.linear("head", "classifier") if head else {}),
        }
        state |= theirs.layers(config.layers, _NAMES, "layers")
        return theirs.filled(cls(config), state, ("pooler.", "embeddings.mask_token"))


_NAMES = {
    "norm1": "layernorm_before",
    "attention.Q": "attention.q_proj",
    "attention.K": "attention.k_proj",
    "attention.V": "attention.v_proj",
    "attention.O": "attention.o_proj",
    "norm2": "layernorm_after",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
"""Our names of a block's maps, and those of a live model in transformers 5."""

_OLDER = {
    "attention.attention.query": "attention.q_proj",
    "attention.attention.key": "attention.k_proj",
    "attention.attention.value": "attention.v_proj",
    "attention.output.dense": "attention.o_proj",
    "intermediate.dense": "mlp.fc1",
    "output.dense": "mlp.fc2",
}
"""Names in checkpoint files and in transformers 4, and those of a live model; the longer ones first."""


def _renamed(name: str) -> str:
    if not name.startswith("encoder.layer."):
        return name
    number, rest = name.removeprefix("encoder.layer.").split(".", 1)
    for old, new in _OLDER.items():
        if rest.startswith(f"{old}."):
            rest = new + rest.removeprefix(old)
            break
    return f"layers.{number}.{rest}"
