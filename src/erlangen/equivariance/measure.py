"""Numbers, not verdicts: how far a layer is from commuting with a permutation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from erlangen.errors import ShapeError
from erlangen.symmetry.moves import permutation as image_array

Layer = Callable[..., Any]
"""A layer: (n, d) -> (n, d'), or -> (output, anything else). With two inputs: (queries, keys) -> output."""


@final
@dataclass(frozen=True)
class Measurement:
    """The deviation max |f(pi X) - pi f(X)| and the size max |f(X)| it is to be compared with."""

    deviation: float
    scale: float

    @property
    def error(self) -> float:
        """The deviation relative to the output; 0 for an output that is zero everywhere."""
        return self.deviation / self.scale if self.scale else self.deviation


def measure(layer: Layer, permutation: Any, x: Any) -> Measurement:
    """How far a layer is from f(pi X) = pi f(X), with (pi X)_{pi(i)} = X_i, computed in float64.

    A module is copied, so it stays as it is; the copy runs in double precision and in eval mode. With two
    inputs, x = (queries, keys) and permutation = (tau, sigma), it is f(tau X, sigma Y) = tau f(X, Y).

    >>> from erlangen.nn import MaskedAttention, SelfAttention
    >>> x, turn = torch.randn(4, 8), [1, 2, 3, 0]
    >>> measure(SelfAttention(8), turn, x).error < 1e-12, measure(MaskedAttention(8), turn, x).error > 1e-3
    (True, True)
    """
    return DoubleLayer(layer, x).measure(permutation)


class DoubleLayer:
    """A layer in float64 with its inputs and its output on them, to be measured on many permutations."""

    def __init__(self, layer: Layer, x: Any) -> None:
        self.layer = in_double(layer)
        inputs = x if isinstance(x, (tuple, list)) else (x,)
        if not 1 <= len(inputs) <= 2 or not all(isinstance(t, Tensor) and t.dim() == 2 for t in inputs):
            raise ShapeError("x must be a tensor of shape (n, d), or a pair of them (queries, keys)")
        self.inputs = tuple(t.detach().to(torch.float64) for t in inputs)
        self.output = self._run(*self.inputs)

    def measure(self, permutation: Any) -> Measurement:
        """The deviation from commuting with one permutation, or with a pair (tau, sigma)."""
        parts = permutation if len(self.inputs) == 2 else (permutation,)
        if len(parts) != len(self.inputs):
            raise ShapeError(f"two inputs take a pair (tau, sigma), got {len(parts)} permutations")
        images = [image_array(part, len(t)) for part, t in zip(parts, self.inputs, strict=True)]
        moved = self._run(*(_act(image, t) for image, t in zip(images, self.inputs, strict=True)))
        deviation = (
            (moved - _act(images[0], self.output)).abs().max() if self.output.numel() else torch.zeros(())
        )
        scale = self.output.abs().max() if self.output.numel() else torch.zeros(())
        return Measurement(float(deviation), float(scale))

    def _run(self, *inputs: Tensor) -> Tensor:
        with torch.no_grad():
            result = output_of(self.layer(*inputs))
        if result.dim() != 2 or len(result) != len(inputs[0]):
            raise ShapeError(
                f"the layer maps {tuple(inputs[0].shape)} to {tuple(result.shape)}; expected (n, d)"
            )
        return result


def in_double(layer: Layer) -> Layer:
    """A module as a copy in float64 and eval mode; any other callable as it is."""
    return copy.deepcopy(layer).double().eval() if isinstance(layer, nn.Module) else layer


def output_of(result: Any) -> Tensor:
    """The output of a layer that returns it alone or first in a tuple (h, weights)."""
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, Tensor):
        raise ShapeError(
            f"the layer returned {type(first).__name__}, expected a tensor or a tuple that begins with one"
        )
    return first


def _act(image: np.ndarray, x: Tensor) -> Tensor:
    """(pi X)_{pi(i)} = X_i."""
    moved = torch.empty_like(x)
    moved[torch.from_numpy(image).to(x.device)] = x
    return moved
