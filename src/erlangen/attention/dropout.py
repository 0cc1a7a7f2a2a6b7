"""The dropout of the native kernels in PyTorch: a hash, so that a later pass drops the same pairs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Drop:
    """The dropout of the native kernels: whether a pair is kept depends on (seed, batch item, head, i, j)
    alone."""

    def __init__(self, probability: float, seed: Tensor | None, heads: int) -> None:
        self.threshold = int(probability * 4294967295.0)
        self.scale = 1 / (1 - probability)
        self.seed = torch.zeros((), dtype=torch.int64) if seed is None else seed.to(torch.int64)
        self.heads = heads

    def __call__(self, weights: Tensor, items: Tensor, heads: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The weights with their factors; item, head, query and key of each broadcast to them."""
        rows = _mix64(_mix64(self.seed + _GOLDEN) + (items * self.heads + heads))
        key = _mix64(rows + i * _GOLDEN) & _LOW
        kept = _mix32(key ^ _mix32((j + 0x9E3779B9) & _LOW)) >= self.threshold
        return weights * (kept * self.scale).to(weights.dtype)


_LOW = 0xFFFFFFFF


def _signed(x: int) -> int:
    return int(np.uint64(x).astype(np.int64))


_GOLDEN = _signed(0x9E3779B97F4A7C15)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right of 64 bits."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix64(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _mix32(x: Tensor) -> Tensor:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)
