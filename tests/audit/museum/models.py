"""The exhibits: small models with a switch for one deliberate fault; off, each is its correct twin."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit_models import stack

N = 8
CAUSAL = er.Causal()


def future_leak(faulty: bool) -> nn.Module:
    """Head 1 of layer 1 reads key 5 at query 2."""
    leaky = er.FromMask(CAUSAL.on(N).dense() | (np.arange(N * N).reshape(N, N) == 2 * N + 5))
    return stack([[CAUSAL, CAUSAL], [CAUSAL, leaky if faulty else CAUSAL]], N)


def wide_window(faulty: bool) -> nn.Module:
    """Layer 1 looks back one position too far."""
    return stack([[er.Window(3)], [er.Window(4 if faulty else 3)]], N)


def narrow_window(faulty: bool) -> nn.Module:
    """Layer 1 does not look back far enough."""
    return stack([[er.Window(3)], [er.Window(2 if faulty else 3)]], N)


def documents_crossed(faulty: bool) -> nn.Module:
    """Layer 0 forgets where one packed document ends."""
    kept = CAUSAL & er.Documents([3, 5])
    return stack([[CAUSAL if faulty else kept], [kept]], N)


def inverted(faulty: bool) -> nn.Module:
    """True means "blocked" to the caller, "read" to the kernel."""
    return stack([[~CAUSAL | er.Identity() if faulty else CAUSAL]], N)


class Padded(nn.Module):
    """Self-attention over tokens with an attention mask that may be forgotten."""

    def __init__(self, forgets: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.forgets = nn.Embedding(20, 16), nn.Linear(16, 48), forgets

    def forward(self, input_ids, attention_mask, output_attentions=False):
        x = self.embed(input_ids)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mask = attention_mask.bool()[:, None, :]
        if self.forgets == "always" or (self.forgets == "training" and self.training):
            mask = torch.ones_like(mask)
        if not output_attentions:
            return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        scores = q @ k.transpose(-2, -1) / 4.0
        if self.forgets != "weights":
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1)
        return x + weights @ v, weights


def padding_read(faulty: bool) -> nn.Module:
    """Padding keys are read by everyone."""
    return Padded("always" if faulty else "never")


def dropped_in_training(faulty: bool) -> nn.Module:
    """The mask is lost in training mode only."""
    return Padded("training" if faulty else "never")


def dropped_with_weights(faulty: bool) -> nn.Module:
    """The mask is lost when attention weights are requested."""
    return Padded("weights" if faulty else "never")


class Decode(nn.Module):
    """New positions behind a cache; `top_left` lets is_causal align them with the oldest keys."""

    def __init__(self, top_left: bool) -> None:
        super().__init__()
        self.top_left = top_left

    def forward(self, x, past_key_values):
        keys = torch.cat([past_key_values, x], dim=1)
        if self.top_left:
            return F.scaled_dot_product_attention(x, keys, keys, is_causal=True)
        mask = torch.ones(x.shape[1], keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - x.shape[1])
        return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)


def top_left(faulty: bool) -> nn.Module:
    """Causal alignment behind a cache at the wrong corner."""
    return Decode(faulty)


class EmptyRow(nn.Module):
    """Strictly causal attention: query 0 reads nothing. A finite mask value makes it read everything."""

    def __init__(self, finite: bool) -> None:
        super().__init__()
        self.finite = finite

    def forward(self, x):
        n = x.shape[1]
        allowed = torch.ones(n, n, dtype=torch.bool).tril(-1)
        scores = x @ x.transpose(-2, -1)
        if self.finite:
            return scores.masked_fill(~allowed, -1e9).softmax(-1) @ x
        weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        return weights.masked_fill(~allowed, 0.0) @ x


def empty_row(faulty: bool) -> nn.Module:
    """-1e9 on a row with nothing else."""
    return EmptyRow(faulty)


class Cross(nn.Module):
    """A decoder that must not read the encoder's last two positions."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = stack([[er.Full()]], N), stack([[CAUSAL]], N)
        self.read, self.masked = nn.MultiheadAttention(16, 2, batch_first=True), masked

    def forward(self, src, tgt):
        memory, state = self.encoder(src), self.decoder(tgt)
        banned = torch.zeros(tgt.shape[1], src.shape[1], dtype=torch.bool)
        banned[:, 6:] = True
        mask = banned if self.masked else None
        return state + self.read(state, memory, memory, attn_mask=mask, need_weights=False)[0]


def cross_unmasked(faulty: bool) -> nn.Module:
    """The cross-attention mask is missing."""
    return Cross(not faulty)


class Convolved(nn.Module):
    """A convolution before causal attention, centred or causal."""

    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.stack, self.conv, self.pad = (
            stack([[CAUSAL]], N),
            nn.Conv1d(16, 16, 3),
            (1, 1) if ahead else (2, 0),
        )

    def forward(self, x):
        return self.stack(self.conv(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2))


def convolution(faulty: bool) -> nn.Module:
    """The future leaks through a convolution, not through attention."""
    return Convolved(faulty)


class Normed(nn.Module):
    """Causal attention, then normalisation by the statistics of the batch, or of each position."""

    def __init__(self, batch: bool) -> None:
        super().__init__()
        self.stack, self.batch = stack([[CAUSAL]], N), batch

    def forward(self, x):
        x = self.stack(x)
        axes = (0, 1) if self.batch else (2,)
        return (x - x.mean(axes, keepdim=True)) / (x.std(axes, keepdim=True) + 1e-5)


def batch_statistics(faulty: bool) -> nn.Module:
    """Statistics over the batch and time leak the future and the other sequences."""
    return Normed(faulty)
