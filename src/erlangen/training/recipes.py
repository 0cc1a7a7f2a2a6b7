"""The settings of each recipe, with defaults for two CPU cores. No torch: the command line reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GPTRecipe:
    """How to train a GPT on a text.

    `batch` counts the windows per step and process, `rate` is the highest learning rate; `context`, `layers`,
    `heads`, `width` and `dropout` are the sizes of the model.

    >>> GPTRecipe(layers=2).context
    128
    """

    context: int = 128
    layers: int = 4
    heads: int = 4
    width: int = 128
    dropout: float = 0.0
    batch: int = 32
    rate: float = 2e-3
    steps: int = 2000
    seed: int = 0


@dataclass(frozen=True)
class ViTRecipe:
    """How to train a ViT on handwritten digits of 8 x 8 pixels.

    `batch` counts the images per step and process, `rate` is the highest learning rate; `patch`, `layers`,
    `heads`, `width` and `dropout` are the sizes of the model.

    >>> ViTRecipe(steps=10).patch
    2
    """

    patch: int = 2
    layers: int = 3
    heads: int = 4
    width: int = 64
    dropout: float = 0.0
    batch: int = 64
    rate: float = 2e-3
    steps: int = 1200
    seed: int = 0


@dataclass(frozen=True)
class GATRecipe:
    """How to train a GAT on a citation network, as published: all nodes in every step.

    `hidden`, `heads`, `output_heads` and `dropout` are the sizes of the model, `rate` is the learning rate,
    `decay` the weight of the squared parameters. Training ends after `steps`, or when neither the loss nor
    the accuracy on the validation nodes has got better for `patience` of them.

    >>> GATRecipe(seed=1).heads
    8
    """

    hidden: int = 8
    heads: int = 8
    output_heads: int = 1
    dropout: float = 0.6
    rate: float = 0.005
    decay: float = 5e-4
    patience: int = 100
    steps: int = 2000
    seed: int = 0
