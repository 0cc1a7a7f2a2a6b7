"""Correct models of shapes and habits that are easily accused, each beside its faulty twin.

`CASES` maps a name to a function of `bad` that builds `(model, inputs, expect)`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er

N, DIM, VOCABULARY = 12, 16, 20
CAUSAL = er.Causal()

Case = tuple[nn.Module, Any, Any]
CASES: dict[str, Callable[[bool], Case]] = {}


def case(build: Callable[[bool], Case]) -> Callable[[bool], Case]:
    """Register a function that builds a case."""
    CASES[build.__name__.replace("_", "-")] = build
    return build


def vectors(*shape: int, seed: int = 1) -> torch.Tensor:
    """Vectors, always the same."""
    return torch.randn(*(shape or (2, N, DIM)), generator=torch.Generator().manual_seed(seed))


def tokens(*shape: int, seed: int = 2, low: int = 0) -> torch.Tensor:
    """Token ids, always the same."""
    return torch.randint(low, VOCABULARY, shape or (2, N), generator=torch.Generator().manual_seed(seed))


class Attention(nn.Module):
    """One head over the last but one axis; `bad` reads one step ahead, `scale` multiplies the scores."""

    def __init__(self, bad: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.bad, self.scale = bad, scale

    def forward(self, x: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
        n = x.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool, device=x.device).tril(1 if self.bad else 0)
        if keep is not None:
            mask = mask & keep | torch.eye(n, dtype=torch.bool)
        scores = self.q(x) @ self.k(x).mT * self.scale / DIM**0.5
        return x + scores.masked_fill(~mask, -torch.inf).softmax(-1) @ self.v(x)


class Decoder(nn.Module):
    """Tokens, one layer, logits; `bad` reads one step ahead."""

    def __init__(self, bad: bool = False, padding_idx: int | None = None) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM, padding_idx=padding_idx)
        self.layer, self.head = Attention(bad), nn.Linear(DIM, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(ids)))


# ---- rounding


class Spectral(nn.Module):
    """A long convolution by FFT in single precision; `leak` of the future is added."""

    def __init__(self, leak: float, n: int, where: str) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(n, DIM) * 0.3)
        self.leak, self.where = leak, where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, dtype = x.shape[1], x.dtype
        x = x.float()
        size = 2 * n
        kernel = self.kernel[:n].float()
        y = torch.fft.irfft(torch.fft.rfft(x, size, dim=1) * torch.fft.rfft(kernel, size, dim=0), size, dim=1)
        y = y[:, :n]
        if self.leak:
            y = y + self.leak * x.roll(-1, 1)
        return (y + x).to(dtype) if self.where == "inside" else y + x


@case
def fft_in_single_precision(bad: bool) -> Case:
    return Spectral(3e-5 if bad else 0.0, 16, "inside"), vectors(2, 16, DIM), CAUSAL


@case
def long_fft_in_single_precision(bad: bool) -> Case:
    return Spectral(3e-5 if bad else 0.0, 64, ""), vectors(2, 64, DIM), CAUSAL


@case
def fft_of_large_numbers(bad: bool) -> Case:
    return (
        Spectral(3e-5 if bad else 0.0, 32, ""),
        vectors(2, 32, DIM) * torch.logspace(3, 0, 32)[:, None],
        CAUSAL,
    )


class InDouble(Spectral):
    """Weights and outputs in double precision, the transform in single."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).double() + x


@case
def fft_within_a_model_in_double(bad: bool) -> Case:
    return InDouble(3e-5 if bad else 0.0, 16, "").double(), vectors(2, 16, DIM).double(), CAUSAL


class Cancelling(nn.Module):
    """The sum of the past as everything less the future, of numbers far from zero: rounding is as large as
    the sums, and the outputs are not."""

    def __init__(self, leak: float) -> None:
        super().__init__()
        self.leak = leak

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        far = x + 100
        past = far.sum(1, keepdim=True) - (far.flip(1).cumsum(1).flip(1) - far)
        return past - 100 * torch.arange(1, x.shape[1] + 1)[:, None] + self.leak * x.roll(-1, 1)


@case
def sums_that_cancel(bad: bool) -> Case:
    return Cancelling(3e-3 if bad else 0.0), vectors(), CAUSAL


# ---- tokens of padding


@case
def embedding_with_padding_idx(bad: bool) -> Case:
    ids = tokens(low=1)
    ids[1, -3:] = 0
    return Decoder(bad, padding_idx=0), ids, CAUSAL


@case
def last_token_is_padding_idx(bad: bool) -> Case:
    ids = tokens()
    ids[:, 4] = VOCABULARY - 1
    return Decoder(bad, padding_idx=VOCABULARY - 1), ids, CAUSAL


# ---- losses


class Trained(nn.Module):
    """Logits and a loss as training code returns them."""

    def __init__(self, bad: bool, form: str) -> None:
        super().__init__()
        self.decoder, self.form = Decoder(bad and form != "labels"), form
        self.bad = bad

    def forward(self, idx: torch.Tensor, targets: torch.Tensor | None = None) -> Any:
        logits = self.decoder(idx)
        batch, n, size = logits.shape
        if targets is None:
            return logits, None
        flat = logits.view(batch * n, size)
        if self.form == "folded":
            return flat, F.cross_entropy(flat, targets.view(-1))
        losses = F.cross_entropy(flat, targets.view(-1), reduction="none")
        if self.form == "flat losses":
            return logits, losses
        losses = losses.view(batch, n)
        if self.form == "labels" and self.bad:
            losses = losses + 0.1 * losses.roll(-1, 1)
        if self.form == "losses only":
            return losses
        if self.form == "named":
            return {"logits": logits, "loss": losses}
        return logits, losses


def _trained(form: str, n: int = N, batch: int = 2) -> Callable[[bool], Case]:
    def build(bad: bool) -> Case:
        ids = tokens(batch, n + 1)
        return (
            Trained(bad, form),
            {"idx": ids[:, :-1].contiguous(), "targets": ids[:, 1:].contiguous()},
            CAUSAL,
        )

    return build


CASES["folded-logits-and-loss"] = _trained("folded")
CASES["folded-logits-of-one-item"] = _trained("folded", batch=1)
CASES["folded-logits-of-three-items"] = _trained("folded", n=9, batch=3)
CASES["losses-of-tokens"] = _trained("")
CASES["losses-of-tokens-flat"] = _trained("flat losses")
CASES["losses-of-tokens-alone"] = _trained("losses only")
CASES["losses-of-tokens-named"] = _trained("named")
CASES["losses-read-the-next-label"] = _trained("labels")


class Unreduced(nn.Module):
    """Losses of tokens for labels that are not the tokens moved on (other language, tags)."""

    def __init__(self, bad: bool, flat: bool) -> None:
        super().__init__()
        self.decoder, self.flat = Decoder(bad), flat

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> Any:
        logits = self.decoder(ids)
        losses = F.cross_entropy(logits.mT, labels, reduction="none", ignore_index=-100)
        return losses.flatten() if self.flat else losses


@case
def losses_of_tags(bad: bool) -> Case:
    labels = tokens(seed=5)
    labels[0, :3] = -100
    return Unreduced(bad, False), {"ids": tokens(), "labels": labels}, CAUSAL


@case
def losses_of_tags_flat(bad: bool) -> Case:
    return Unreduced(bad, True), {"ids": tokens(), "labels": tokens(seed=5)}, CAUSAL


# ---- more axes than (batch, n)


class Choices(nn.Module):
    """(batch, choices, n) ids, folded into the batch; one score for each choice, or the rows."""

    def __init__(self, bad: bool, form: str) -> None:
        super().__init__()
        self.decoder, self.score, self.form = Decoder(bad), nn.Linear(VOCABULARY, 1), form

    def forward(self, input_ids: torch.Tensor) -> Any:
        batch, choices, n = input_ids.shape
        rows = self.decoder(input_ids.view(batch * choices, n))
        scores = self.score(rows[:, -1]).view(batch, choices)
        if self.form == "scores":
            return scores
        if self.form == "rows":
            return rows.view(batch, choices, n, -1)
        return scores, rows


@case
def choices_scored(bad: bool) -> Case:
    return Choices(bad, "scores"), tokens(2, 3, N), CAUSAL


@case
def choices_with_rows(bad: bool) -> Case:
    return Choices(bad, "rows"), tokens(2, 3, N), CAUSAL


@case
def choices_folded(bad: bool) -> Case:
    return Choices(bad, "both"), tokens(2, 3, N), CAUSAL


class Codebooks(nn.Module):
    """Ids of several codebooks, embedded and summed."""

    def __init__(self, bad: bool, last: bool, out: str) -> None:
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(VOCABULARY, DIM) for _ in range(3))
        self.layer, self.heads = Attention(bad), nn.ModuleList(nn.Linear(DIM, VOCABULARY) for _ in range(3))
        self.last, self.out = last, out

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        codes = codes.movedim(-1, 1) if self.last else codes
        x = self.layer(sum(embed(codes[:, k]) for k, embed in enumerate(self.embeds)))
        axis = 2 if self.out == "(b, n, k, v)" else 1
        return torch.stack([head(x) for head in self.heads], axis)


for _last in (False, True):
    for _out in ("(b, n, k, v)", "(b, k, n, v)"):

        def _codes(bad: bool, last: bool = _last, out: str = _out) -> Case:
            return Codebooks(bad, last, out), tokens(2, N, 3) if last else tokens(2, 3, N), CAUSAL

        CASES[f"codebooks-{'last' if _last else 'first'}-{_out}"] = _codes


# ---- a condition before the sequence


class Conditioned(nn.Module):
    """A condition as the first row, or as several rows; `rows` says which rows come out."""

    def __init__(self, bad: bool, rows: str, prefix: int) -> None:
        super().__init__()
        self.decoder, self.rows, self.prefix = Decoder(bad), rows, prefix
        self.condition = nn.Linear(DIM, DIM)

    def forward(self, ids: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        first = self.condition(condition)
        first = first[:, None] if first.dim() == 2 else first
        x = torch.cat([first, self.decoder.embed(ids)], 1)
        x = self.decoder.head(self.decoder.layer(x))
        if self.rows == "before":
            return x[:, first.shape[1] - 1 : -1]
        return x[:, first.shape[1] :] if self.rows == "own" else x


for _rows in ("all", "own", "before"):
    for _prefix in (0, 3, N):

        def _conditioned(bad: bool, rows: str = _rows, prefix: int = _prefix) -> Case:
            condition = vectors(2, prefix, DIM) if prefix else vectors(2, DIM)
            return Conditioned(bad, rows, prefix), {"ids": tokens(), "condition": condition}, CAUSAL

        CASES[f"condition-of-{_prefix}-rows-returns-{_rows}"] = _conditioned


# ---- lengths


class Lengths(nn.Module):
    """Bidirectional or causal attention over the first `lens[b]` positions."""

    def __init__(self, bad: bool, causal: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.bad, self.causal = bad, causal

    def attend(self, x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        keep = torch.arange(n)[None, :] < (sizes[:, None] + (1 if self.bad else 0))
        mask = keep[:, None, :].expand(-1, n, n)
        if self.causal:
            mask = mask & torch.ones(n, n, dtype=torch.bool).tril(1 if self.bad else 0)
        return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), attn_mask=mask)


for _name in ("lens", "num_frames", "sizes"):
    for _causal in (False, True):

        def _lengths(bad: bool, name: str = _name, causal: bool = _causal) -> Case:
            space: dict[str, Any] = {}
            exec(f"def forward(self, x, {name}): return self.attend(x, {name})", space)
            model = type("Model", (Lengths,), {"forward": space["forward"]})(bad, causal)
            return model, {"x": vectors(), name: torch.tensor([N, N - 4])}, CAUSAL if causal else er.Full()

        CASES[f"lengths-called-{_name}-{'causal' if _causal else 'full'}"] = _lengths


# ---- sequence first


class StepsFirst(nn.Module):
    """(n, batch) ids or (n, batch, dim) vectors, with a mask (batch, n) of padding."""

    def __init__(self, bad: bool, ids: bool, causal: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM) if ids else nn.Identity()
        self.attention = nn.MultiheadAttention(DIM, 2)
        self.bad, self.causal = bad, causal

    def forward(self, src: torch.Tensor, src_key_padding_mask: torch.Tensor | None = None) -> torch.Tensor:
        x, n = self.embed(src), src.shape[0]
        mask = torch.ones(n, n, dtype=torch.bool).triu(2 if self.bad else 1) if self.causal else None
        hidden = None if self.bad and not self.causal else src_key_padding_mask
        return x + self.attention(x, x, x, attn_mask=mask, key_padding_mask=hidden, need_weights=False)[0]


for _ids in (False, True):
    for _masked in (False, True):
        for _causal in (False, True):

            def _steps(bad: bool, ids: bool = _ids, masked: bool = _masked, causal: bool = _causal) -> Case:
                src = tokens(N, 2) if ids else vectors(N, 2, DIM)
                inputs: dict[str, Any] = {"src": src}
                if masked:
                    inputs["src_key_padding_mask"] = torch.arange(N)[None, :] >= torch.tensor([[N], [N - 3]])
                return StepsFirst(bad, ids, causal), inputs, CAUSAL if causal else er.Full()

            if _masked or _causal:
                kind, mask = "ids" if _ids else "vectors", "-masked" if _masked else ""
                CASES[f"steps-first-{kind}{mask}-{'causal' if _causal else 'full'}"] = _steps


# ---- saturation


class Saturated(nn.Module):
    """Scores times 100: the softmax takes one key and the others vanish."""

    def __init__(self, bad: bool, ids: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, DIM) if ids else nn.Identity()
        self.layer = Attention(bad, scale=100.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.embed(x))


class SaturatedByHand(Saturated):
    """The same where no softmax can be watched, behind a norm that undoes small activations."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.layer_norm(self.embed(x), (DIM,))
        layer, n = self.layer, x.shape[1]
        scores = layer.q(x) @ layer.k(x).mT * layer.scale
        mask = torch.ones(n, n, dtype=torch.bool).tril(1 if layer.bad else 0)
        scores = (scores - scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)).clamp(max=0)
        weights = scores.exp() * mask
        return x + weights / weights.sum(-1, keepdim=True) @ layer.v(x)


@case
def saturated_vectors(bad: bool) -> Case:
    return Saturated(bad, False), vectors(), CAUSAL


@case
def saturated_inputs(bad: bool) -> Case:
    return Attention(bad), 100 * vectors(), CAUSAL


@case
def saturated_tokens(bad: bool) -> Case:
    return Saturated(bad, True), tokens(), CAUSAL


@case
def saturated_by_hand(bad: bool) -> Case:
    return SaturatedByHand(bad, False), vectors(), CAUSAL


@case
def saturated_by_hand_tokens(bad: bool) -> Case:
    return SaturatedByHand(bad, True), tokens(), CAUSAL


# ---- documents one by one


class OneByOne(nn.Module):
    """One attention call for each document of a packed sequence."""

    def __init__(self, bad: bool, sizes: list[int]) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.bad, self.sizes = bad, sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = []
        for number, part in enumerate(x.split(self.sizes, dim=1)):
            causal = not (self.bad and number == 1)
            parts.append(
                F.scaled_dot_product_attention(self.q(part), self.k(part), self.v(part), is_causal=causal)
            )
        return x + torch.cat(parts, 1)


@case
def documents_one_by_one(bad: bool) -> Case:
    return OneByOne(bad, [5, 4, 3]), vectors(), er.Documents([5, 4, 3]) & CAUSAL


@case
def documents_of_equal_size_one_by_one(bad: bool) -> Case:
    return OneByOne(bad, [4, 4, 4]), vectors(), er.Documents([4, 4, 4]) & CAUSAL


class OneByOneFrom(nn.Module):
    """The same with the ends of documents as an input, as variable-length kernels take them."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.bad = bad

    def forward(self, x: torch.Tensor, cu_seqlens: torch.Tensor) -> torch.Tensor:
        parts, ends = [], cu_seqlens.tolist()
        for start, end in pairwise(ends):
            part = x[None, start:end] if x.dim() == 2 else x[:, start:end]
            parts.append(
                F.scaled_dot_product_attention(
                    self.q(part), self.k(part), self.v(part), is_causal=not self.bad
                )
            )
        y = torch.cat(parts, 1)
        return x + (y[0] if x.dim() == 2 else y)


@case
def documents_by_their_ends(bad: bool) -> Case:
    inputs = {"x": vectors(), "cu_seqlens": torch.tensor([0, 5, 9, 12], dtype=torch.int32)}
    return OneByOneFrom(bad), inputs, er.Documents([5, 4, 3]) & CAUSAL


@case
def packed_rows_by_their_ends(bad: bool) -> Case:
    inputs = {"x": vectors(N, DIM), "cu_seqlens": torch.tensor([0, 5, 9, 12], dtype=torch.int32)}
    return OneByOneFrom(bad), inputs, er.Documents([5, 4, 3]) & CAUSAL


# ---- attention alone


class Bare(nn.Module):
    """Attention that is fed with queries, keys and values, (batch, heads, n, dim)."""

    def __init__(self, bad: bool, hidden: bool) -> None:
        super().__init__()
        self.bad, self.hidden = bad, hidden

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n = q.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool).tril(1 if self.bad else 0)
        if not self.hidden:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).exp() * mask
        return weights / weights.sum(-1, keepdim=True) @ v


def _bare(*shape: int, hidden: bool = False) -> Callable[[bool], Case]:
    def build(bad: bool) -> Case:
        return Bare(bad, hidden), tuple(vectors(*shape, seed=seed) for seed in (1, 2, 3)), CAUSAL

    return build


CASES["bare-attention-of-heads"] = _bare(2, 3, N, DIM)
CASES["bare-attention-of-heads-by-hand"] = _bare(2, 3, N, DIM, hidden=True)
CASES["bare-attention-of-one-item"] = _bare(1, 4, N, 8)
CASES["bare-attention-of-one-head"] = _bare(2, 1, N, 8)
CASES["bare-attention-as-wide-as-long"] = _bare(2, 4, 8, 8)
CASES["bare-attention-without-heads"] = _bare(2, N, 8)
CASES["bare-attention-like-an-image"] = _bare(2, 3, 16, 16)


# ---- rows that do not follow their positions


class Recurrent(nn.Module):
    """Attention without a residual over a recurrent layer: position j moves other rows more than row j."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.rnn, self.qkv, self.head = (
            nn.GRU(DIM, DIM, batch_first=True),
            nn.Linear(DIM, 3 * DIM),
            nn.Linear(DIM, VOCABULARY),
        )
        self.bad = bad

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        n = x.shape[1]
        q, k, v = self.qkv(self.rnn(x)[0]).chunk(3, -1)
        mask = torch.ones(n, n, dtype=torch.bool).tril(1 if self.bad else 0)
        weights = (q @ k.mT / DIM**0.5).masked_fill(~mask, -torch.inf).softmax(-1)
        logits = self.head(weights @ v)
        return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@case
def rows_beside_labels_of_their_length(bad: bool) -> Case:
    return Recurrent(bad), {"x": vectors(), "labels": tokens()}, {"": CAUSAL}


# ---- an encoder at another rate


class Reads(nn.Module):
    """One head of queries over the rows of another tensor, or of the same; `ahead` as a mask's diagonal."""

    def __init__(self, ahead: int | None) -> None:
        super().__init__()
        self.q, self.kv, self.ahead = nn.Linear(DIM, DIM), nn.Linear(DIM, 2 * DIM), ahead

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        k, v = self.kv(other).chunk(2, -1)
        mask = torch.ones(x.shape[1], other.shape[1], dtype=torch.bool)
        mask = mask if self.ahead is None else mask.tril(self.ahead)
        return x + F.scaled_dot_product_attention(self.q(x), k, v, attn_mask=mask)


class HalfRate(nn.Module):
    """Frames to half as many rows, read by two layers of a decoder; it returns both."""

    def __init__(self, bad: bool, where: str) -> None:
        super().__init__()
        self.conv, self.embed = nn.Conv1d(DIM, DIM, 3, 2, 1), nn.Embedding(VOCABULARY, DIM)
        self.encoder = nn.ModuleList(Reads(4 if bad and where == "encoder" else None) for _ in range(2))
        self.own = nn.ModuleList(Reads(1 if bad and where == "decoder" else 0) for _ in range(2))
        self.cross = nn.ModuleList(Reads(None) for _ in range(2))

    def forward(self, frames: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        y, x = self.conv(frames.mT).mT, self.embed(ids)
        for layer in self.encoder:
            y = layer(y, y)
        for own, cross in zip(self.own, self.cross, strict=True):
            x = own(x, x)
            x = cross(x, y)
        return {"rows": x, "encoded": y}


def _half_rate(where: str) -> Callable[[bool], Case]:
    def build(bad: bool) -> Case:
        expect = {"encoder.*": er.Full(), "own.*": CAUSAL, "cross.*": er.Full()}
        return HalfRate(bad, where), {"frames": vectors(2, 24, DIM), "ids": tokens(2, 8)}, expect

    return build


CASES["decoder-of-an-encoder-at-half-the-rate"] = _half_rate("decoder")
CASES["encoder-at-half-the-rate"] = _half_rate("encoder")
