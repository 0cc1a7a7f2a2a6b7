"""Small hand-written transformers for the audit's tests: any relation for each head, in many styles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STYLES = (
    "masked_fill", "where", "minus_inf", "minus_1e9", "finfo_min", "einsum", "softmax_method",
    "softmax_module", "folded_heads", "baddbmm", "keys_first", "in_place", "after_softmax",
    "sdpa_bool", "sdpa_float", "mha", "max_subtracted", "softcap", "sinks",
)  # fmt: skip


class Attention(nn.Module):
    """Self-attention over masks of shape (heads, n, n), True = may read, written in one of many styles."""

    def __init__(self, dim: int, masks: torch.Tensor, style: str) -> None:
        super().__init__()
        self.heads, self.style = len(masks), style
        self.register_buffer("masks", masks, persistent=False)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(0.1)
        self.sink = nn.Parameter(torch.zeros(self.heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, n, dim = x.shape
        h, d = self.heads, dim // self.heads
        masks = self.masks[:, :n, :n]
        if self.style == "mha":
            weight, bias = self.qkv.weight, self.qkv.bias
            blocked = ~masks.expand(batch, h, n, n).reshape(batch * h, n, n)
            out, _ = F.multi_head_attention_forward(
                x.transpose(0, 1), x.transpose(0, 1), x.transpose(0, 1), dim, h, weight, bias, None, None,
                False, 0.0, self.out.weight, self.out.bias, self.training,
                attn_mask=blocked, need_weights=False,
            )  # fmt: skip
            return out.transpose(0, 1)
        q, k, v = self.qkv(x).view(batch, n, 3, h, d).permute(2, 0, 3, 1, 4)
        return self.out(self._attend(q, k, v, masks).transpose(1, 2).reshape(batch, n, dim))

    def _attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        batch, h, n, d = q.shape
        scale, style = d**-0.5, self.style
        if style == "sdpa_bool":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=masks[None])
        if style == "sdpa_float":
            bias = torch.zeros(masks.shape).masked_fill(~masks, float("-inf"))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])
        if style == "folded_heads":
            flat = [t.reshape(batch * h, n, d) for t in (q, k, v)]
            scores = torch.bmm(flat[0], flat[1].transpose(1, 2)) * scale
            scores = scores.view(batch, h, n, n).masked_fill(~masks, float("-inf")).view(batch * h, n, n)
            return torch.bmm(torch.softmax(scores, dim=-1), flat[2]).view(batch, h, n, d)
        if style == "baddbmm":
            bias = torch.zeros(masks.shape).masked_fill(~masks, float("-inf")).repeat(batch, 1, 1)
            flat = [t.reshape(batch * h, n, d) for t in (q, k, v)]
            scores = torch.baddbmm(bias, flat[0], flat[1].transpose(1, 2), alpha=scale)
            return torch.bmm(scores.softmax(-1), flat[2]).view(batch, h, n, d)
        if style == "keys_first":
            scores = (k @ q.transpose(-2, -1)) * scale
            scores = scores.masked_fill(~masks.transpose(-2, -1), float("-inf"))
            return scores.softmax(dim=-2).transpose(-2, -1) @ v
        if style == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
            weights = F.softmax(scores.masked_fill(~masks, float("-inf")), dim=-1)
            return torch.einsum("bhqk,bhkd->bhqd", self.dropout(weights), v)
        scores = q @ k.transpose(-2, -1) / d**0.5
        if style == "max_subtracted":
            scores = scores - scores.max(dim=-1, keepdim=True).values
        if style == "softcap":
            scores = torch.tanh(scores / 5.0) * 5.0
        if style == "in_place":
            scores += torch.zeros(masks.shape).masked_fill_(~masks, -1e9)
            scores = scores.masked_fill_(~masks, float("-inf"))
        elif style == "where":
            scores = torch.where(masks, scores, torch.finfo(scores.dtype).min)
        elif style == "minus_1e9":
            scores = scores + (1.0 - masks.float()) * -1e9
        elif style == "finfo_min":
            scores = scores + torch.zeros(masks.shape).masked_fill(~masks, torch.finfo(scores.dtype).min)
        elif style == "minus_inf":
            scores = scores + torch.zeros(masks.shape).masked_fill(~masks, float("-inf"))
        elif style == "after_softmax":
            weights = scores.softmax(-1) * masks
            return (weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)) @ v
        else:
            scores = scores.masked_fill(~masks, float("-inf"))
        if style == "sinks":
            sink = self.sink.view(1, h, 1, 1).expand(batch, h, n, 1)
            weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
            return weights @ v
        if style == "softmax_method":
            return scores.softmax(-1) @ v
        if style == "softmax_module":
            return self.dropout(self.softmax(scores)) @ v
        return F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v


class Block(nn.Module):
    """Attention and a two-layer network, with residuals and normalisation of each position by itself."""

    def __init__(self, dim: int, masks: torch.Tensor, style: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, masks, style)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stack(nn.Module):
    """Blocks with one relation for each layer and head: `masks[layer][head]` is an (n, n) boolean matrix."""

    def __init__(
        self, masks: Sequence[Sequence[np.ndarray]], style: str = "masked_fill", dim: int = 16
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(
            Block(dim, torch.from_numpy(np.stack([np.asarray(head, bool) for head in heads])), style)
            for heads in masks
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def stack(relations: Sequence[Sequence[object]], n: int, style: str = "masked_fill") -> Stack:
    """A stack with the given relations, layer by layer, head by head."""
    return Stack([[relation.on(n).dense() for relation in heads] for heads in relations], style)  # type: ignore


def vectors(n: int, batch: int = 2, dim: int = 16) -> torch.Tensor:
    """Input vectors, always the same."""
    return torch.randn(batch, n, dim, generator=torch.Generator().manual_seed(1))
