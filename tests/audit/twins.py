"""Twins: a faulty model and its correct one for every class of wrong verdict.

Each twin builds `(model, inputs, expect)` twice: `faulty()` and `correct()`. The verdicts that are right for
each side stand beside it. `reads` names an assertion that must raise on the faulty side and pass on the
correct one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import erlangen as er

N, DIM, VOCABULARY = 12, 16, 20
CAUSAL, FULL = er.Causal(), er.Full()
HOLDS, VIOLATED = frozenset({"holds"}), frozenset({"violated"})
NOT_HOLDS = frozenset({"violated", "undecided"})
NOT_VIOLATED = frozenset({"holds", "undecided"})

Case = tuple[nn.Module, Any, Any]


@dataclass(frozen=True)
class Twin:
    """One class of fault: how both sides are built, and which verdicts are right for each."""

    name: str
    line: int
    what: str
    build: Callable[[bool], Case]
    faulty_verdicts: frozenset[str]
    correct_verdicts: frozenset[str]
    reads: str
    """"causal", "padding" or "": which assertion also tells the sides apart."""
    content: str | None
    """The input that is changed by the tests' own check of causality; None for the first tensor."""
    refused: bool
    """Whether the faulty side may also be refused with an error of erlangen's own."""
    sides: str
    """"both", or the one side that exists."""

    def faulty(self) -> Case:
        """The model with the fault."""
        return self._made(True)

    def correct(self) -> Case:
        """The model without it."""
        return self._made(False)

    def _made(self, bad: bool) -> Case:
        torch.manual_seed(0)
        model, inputs, expect = self.build(bad)
        return model.eval(), inputs, expect


TWINS: list[Twin] = []


def twin(
    line: int,
    what: str,
    *,
    faulty: frozenset[str] = VIOLATED,
    correct: frozenset[str] = HOLDS,
    reads: str = "",
    content: str | None = None,
    refused: bool = False,
    sides: str = "both",
) -> Callable[[Callable[[bool], Case]], Callable[[bool], Case]]:
    """Register a function of `bad` that builds a case."""

    def register(build: Callable[[bool], Case]) -> Callable[[bool], Case]:
        name = f"{line:02d}-{build.__name__.replace('_', '-')}"
        TWINS.append(Twin(name, line, what, build, faulty, correct, reads, content, refused, sides))
        return build

    return register


# ---- building blocks


def vectors(n: int = N, batch: int = 2, seed: int = 1) -> torch.Tensor:
    """Input vectors, always the same."""
    return torch.randn(batch, n, DIM, generator=torch.Generator().manual_seed(seed))


def tokens(n: int = N, batch: int = 2, seed: int = 2) -> torch.Tensor:
    """Token ids, always the same; both ends of the vocabulary occur."""
    ids = torch.randint(0, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed))
    ids[0, 0], ids[0, 1] = VOCABULARY - 1, 0
    return ids


def mask_of(relation: er.Relation, n: int, m: int | None = None) -> torch.Tensor:
    """The dense mask of a relation, True = may read."""
    return torch.from_numpy(relation.on(n, m).dense())


@functools.cache
def operator() -> Callable[..., torch.Tensor]:
    """Attention inside an operator that no tool can look into."""
    name = "erlangen_twins::attention"
    if not hasattr(torch.ops.erlangen_twins, "attention"):

        @torch.library.custom_op(name, mutates_args=())
        def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
            q, k, v = (part.to(dtype).numpy(force=True) for part in (q, k, v))
            weights = torch.from_numpy(q @ k.swapaxes(-1, -2) / DIM**0.5).exp() * mask.to(dtype)
            return weights / weights.sum(-1, keepdim=True) @ torch.from_numpy(v)

    return torch.ops.erlangen_twins.attention


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention as exponentials over their sum: no softmax that could be watched."""
    weights = (q @ k.mT / DIM**0.5).exp() * mask
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-9) @ v


class Attention(nn.Module):
    """Attention of one head with a relation for every length; `how` says how visible it is."""

    def __init__(self, relation: er.Relation = CAUSAL, how: str = "exp") -> None:
        super().__init__()
        self.relation, self.how = relation, how
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.mha = nn.MultiheadAttention(DIM, 2, batch_first=True) if how == "mha" else None

    def forward(
        self, x: torch.Tensor, source: torch.Tensor | None = None, keep: torch.Tensor | None = None
    ) -> torch.Tensor:
        source = x if source is None else source
        if self.mha is not None:
            mask = mask_of(self.relation, x.shape[1], source.shape[1])
            return self.mha(x, source, source, attn_mask=~mask, need_weights=False)[0]
        q, k, v = self.q(x), self.k(source), self.v(source)
        if self.how == "attend":
            return er.attend(q[:, None], k[:, None], v[:, None], self.relation)[:, 0]
        mask = mask_of(self.relation, x.shape[1], source.shape[1])
        if keep is not None:
            mask = mask & keep[:, None, :]
        if self.how == "exp":
            return by_hand(q, k, v, mask)
        if self.how == "operator":
            return operator()(q, k, v, mask.to(q.dtype))
        if self.how == "softmax":
            scores = (q @ k.mT / DIM**0.5).masked_fill(~mask, torch.finfo(q.dtype).min)
            return scores.softmax(-1) @ v
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=_four(mask))[:, 0]


def _four(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dim() == 2 else mask[:, None]


class Residual(nn.Module):
    """x + inner(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Conv(nn.Module):
    """A convolution over time; `ahead` makes it read one later position."""

    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.conv, self.pad = nn.Conv1d(DIM, DIM, 3), (1, 1) if ahead else (2, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2)


class Then(nn.Module):
    """Modules one after the other, and a plain function of their result."""

    def __init__(self, *layers: nn.Module, then: Callable[[torch.Tensor], Any] = lambda y: y) -> None:
        super().__init__()
        self.layers, self.then = nn.ModuleList(layers), then

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.then(x)


class Calls(nn.Module):
    """A module whose forward is the function `run(self, ...)`; subclasses give forward its argument names."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def attention(bad: bool, how: str = "exp") -> nn.Module:
    """Full when bad, else causal."""
    return Attention(FULL if bad else CAUSAL, how)


# ---- 1. vacuous


@twin(1, "hidden full attention, then the mean over time", reads="causal")
def hidden_then_mean(bad):
    return Then(attention(bad), then=lambda y: y.mean(1)), vectors(), CAUSAL


@twin(1, "hidden full attention, then every second row", reads="causal")
def hidden_then_every_second_row(bad):
    return Then(attention(bad), then=lambda y: y[:, ::2]), vectors(), CAUSAL


@twin(1, "hidden full attention, then the first seven rows", reads="causal")
def hidden_then_fewer_rows(bad):
    return Then(attention(bad), then=lambda y: y[:, :7]), vectors(), CAUSAL


@twin(1, "hidden full attention, then twice as many rows", reads="causal")
def hidden_then_upsampled(bad):
    return Then(attention(bad), then=lambda y: y.repeat_interleave(2, 1)), vectors(), CAUSAL


@twin(1, "hidden full attention, then the last row", reads="causal")
def hidden_then_last_row(bad):
    return Then(nn.Linear(DIM, DIM), attention(bad), then=lambda y: y[:, -1]), vectors(), CAUSAL


@twin(1, "hidden full attention, then one number", reads="causal")
def hidden_then_a_scalar(bad):
    return Then(attention(bad), then=lambda y: y.pow(2).mean()), vectors(), CAUSAL


@twin(1, "hidden attention and its pooling inside one module", faulty=NOT_HOLDS, correct=NOT_VIOLATED)
def hidden_and_pooled_inside_one_module(bad):
    class Pooled(Attention):
        def forward(self, x):
            return super().forward(x).mean(1)

    return Pooled(FULL if bad else CAUSAL), vectors(), CAUSAL


@twin(1, "an expectation for ten positions, at twelve", faulty=NOT_HOLDS, refused=True)
def documents_that_cannot_be_bound(bad):
    sizes = [5, 5] if bad else [5, 7]
    built = CAUSAL & er.Documents([5, 7])
    return Then(Attention(built)), vectors(), CAUSAL & er.Documents(sizes)


@twin(1, "an expectation for ten positions, at twelve, pooled", faulty=NOT_HOLDS, refused=True)
def documents_that_cannot_be_bound_pooled(bad):
    sizes = [5, 5] if bad else [5, 7]
    model = Then(Attention(er.Documents([5, 7])), then=lambda y: y.mean(1))
    return model, vectors(), er.Documents(sizes)


@twin(1, "an expectation that needs vectors to be bound", faulty=NOT_HOLDS, refused=True, sides="faulty")
def nearest_that_cannot_be_bound(bad):
    return Then(Attention(FULL)), vectors(), er.Nearest(2)


# ---- 2. a second input, nanoGPT's signature


class NanoGPT(nn.Module):
    """nanoGPT's signature: logits at every position with targets, at the last one without."""

    def __init__(self, bad: bool, how: str = "sdpa") -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, DIM)
        self.conv = Residual(Conv(bad))
        self.attn = Residual(Attention(CAUSAL, how))
        self.ln_f = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCABULARY, bias=False)

    def forward(self, idx, targets=None):
        x = self.ln_f(self.attn(self.conv(self.wte(idx))))
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


@twin(2, "nanoGPT with targets, a convolution looks ahead", reads="causal", content="idx")
def nanogpt_with_targets(bad):
    return NanoGPT(bad), {"idx": tokens(), "targets": tokens(seed=3)}, CAUSAL


@twin(2, "nanoGPT with targets that are the shifted tokens", reads="causal", content="idx")
def nanogpt_with_shifted_targets(bad):
    text = tokens(N + 1)
    return NanoGPT(bad, "exp"), {"idx": text[:, :-1], "targets": text[:, 1:]}, CAUSAL


@twin(2, "nanoGPT without targets: only the last row comes out", reads="causal", content="idx")
def nanogpt_without_targets(bad):
    return NanoGPT(bad, "softmax"), {"idx": tokens()}, CAUSAL


@twin(2, "a second input of another length beside the leak", reads="causal", content="x")
def conv_leak_beside_a_context(bad):
    class Model(Calls):
        def forward(self, x, context):
            return self.attn(self.conv(x)) + self.read(x, context)

    parts = {"conv": Conv(bad), "attn": Attention(CAUSAL, "sdpa"), "read": Attention(FULL, "sdpa")}
    expect = {"attn": CAUSAL, "read": FULL}
    return Model(**parts), {"x": vectors(), "context": vectors(5, seed=4)}, expect


# ---- 3. inputs told by parts of names


def leaky(bad: bool) -> dict[str, nn.Module]:
    """Embedding, a convolution that may look ahead, and visible causal attention."""
    return {"embed": nn.Embedding(VOCABULARY, DIM), "conv": Conv(bad), "attn": Attention(CAUSAL, "sdpa")}


class Leaky(Calls):
    def run(self, x):
        x = x if x.is_floating_point() else self.embed(x.long())
        return x + self.attn(self.conv(x))


@twin(3, "forward(self, batch), tokens", reads="causal")
def argument_called_batch(bad):
    class Model(Leaky):
        def forward(self, batch):
            return self.run(batch)

    return Model(**leaky(bad)), tokens(), CAUSAL


@twin(3, "an input called masked_ids", reads="causal")
def argument_called_masked_ids(bad):
    class Model(Leaky):
        def forward(self, masked_ids):
            return self.run(masked_ids)

    return Model(**leaky(bad)), {"masked_ids": tokens()}, CAUSAL


@twin(3, "an input called past_values", reads="causal")
def argument_called_past_values(bad):
    class Model(Leaky):
        def forward(self, past_values):
            return self.run(past_values)

    return Model(**leaky(bad)), {"past_values": vectors()}, CAUSAL


@twin(3, "inputs called token_index and position_vectors", reads="causal", content="position_vectors")
def arguments_with_other_words_in_their_names(bad):
    class Model(Leaky):
        def forward(self, position_vectors, biased_index):
            return self.run(position_vectors + self.embed(biased_index))

    return Model(**leaky(bad)), {"position_vectors": vectors(), "biased_index": tokens()}, CAUSAL


@twin(3, "a tensor inside a dict argument", reads="causal")
def tensor_in_a_dict(bad):
    class Model(Leaky):
        def forward(self, batch):
            return {"out": self.run(batch["ids"])}

    return Model(**leaky(bad)), ({"ids": tokens(), "name": "text"},), CAUSAL


@twin(3, "a tensor inside a list argument", reads="causal")
def tensor_in_a_list(bad):
    class Model(Leaky):
        def forward(self, features):
            return self.run(features[0])

    return Model(**leaky(bad)), {"features": [vectors()]}, CAUSAL


@twin(3, "uint8 tokens", reads="causal")
def uint8_tokens(bad):
    class Model(Leaky):
        def forward(self, data):
            return self.run(data)

    return Model(**leaky(bad)), tokens().to(torch.uint8), CAUSAL


@twin(3, "inputs of shape (batch, time, 4, 4)", reads="causal")
def four_axes(bad):
    class Model(Leaky):
        def forward(self, frames):
            return self.run(frames.flatten(2)).view_as(frames)

    return Model(**leaky(bad)), vectors().view(2, N, 4, 4), CAUSAL


@twin(3, "the user says what is content", reads="causal", content="state")
def content_said_by_the_user(bad):
    from erlangen.audit.inputs import Inputs

    class Model(Leaky):
        def forward(self, state, extra):
            return self.run(state) + extra

    given = {"state": vectors(), "extra": torch.ones(())}
    return Model(**leaky(bad)), Inputs((), given, content=["state"]), CAUSAL


# ---- 4. cross as a loophole


@twin(4, "queries that also read a condition", reads="causal", content="x")
def queries_with_a_condition(bad):
    class Model(Calls):
        def forward(self, x, cond):
            q, k, v = self.q(x) + cond.mean(1, keepdim=True), self.k(x), self.v(x)
            return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=not bad)[:, 0]

    parts = {name: nn.Linear(DIM, DIM) for name in "qkv"}
    return Model(**parts), {"x": vectors(), "cond": vectors(5, seed=4)}, CAUSAL


@twin(4, "keys projected to six summaries of the whole sequence", reads="causal")
def projected_summaries(bad):
    class Model(Calls):
        def forward(self, x):
            if not bad:
                return self.attn(x)
            kept = self.project(F.pad(x, (0, 0, 0, N - x.shape[1])).mT).mT
            return F.scaled_dot_product_attention(x[:, None], kept[:, None], kept[:, None])[:, 0]

    return Model(project=nn.Linear(N, 6), attn=Attention(CAUSAL, "sdpa")), vectors(), CAUSAL


class Chunks(nn.Module):
    """Causal attention, and summaries of the chunks of four before; bad reads its own chunk's too."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.local, self.q = bad, Attention(CAUSAL, "sdpa"), nn.Linear(DIM, DIM)

    def forward(self, x):
        n = x.shape[1]
        count = -(-n // 4)
        summaries = F.pad(x, (0, 0, 0, 4 * count - n)).unflatten(1, (count, 4)).mean(2)
        chunk = torch.arange(n) // 4
        before = torch.arange(count)[None] < (chunk + self.bad)[:, None]
        keys = torch.cat([torch.zeros_like(x[:, :1]), summaries], 1)
        allowed = torch.cat([torch.ones(n, 1, dtype=torch.bool), before], 1)
        read = F.scaled_dot_product_attention(
            self.q(x)[:, None], keys[:, None], keys[:, None], attn_mask=allowed
        )
        return self.local(x) + read[:, 0]


@twin(4, "summaries of chunks, the current one included", reads="causal")
def chunk_summaries(bad):
    return Chunks(bad), vectors(), CAUSAL


@twin(4, "memory tokens before the keys, and no mask", reads="causal")
def memory_tokens(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(q=nn.Linear(DIM, DIM))
            self.memory = nn.Parameter(torch.randn(4, DIM))

        def forward(self, x):
            keys = torch.cat([self.memory.expand(len(x), -1, -1), x], 1)
            n = x.shape[1]
            mask = torch.ones(n, n + 4, dtype=torch.bool)
            mask = mask if bad else mask.tril(4)
            q = self.q(x)
            return F.scaled_dot_product_attention(q[:, None], keys[:, None], keys[:, None], attn_mask=mask)[
                :, 0
            ]

    return Model(), vectors(), CAUSAL


@twin(4, "a decoding loop inside forward: one query and k keys", reads="causal")
def decoding_loop(bad):
    class Model(Calls):
        def forward(self, x):
            q, k, v = self.q(x)[:, None], self.k(x)[:, None], self.v(x)[:, None]
            steps = []
            for t in range(x.shape[1]):
                until = t + 1 + bad
                steps.append(
                    F.scaled_dot_product_attention(q[:, :, t : t + 1], k[:, :, :until], v[:, :, :until])
                )
            return torch.cat(steps, 2)[:, 0]

    return Model(**{name: nn.Linear(DIM, DIM) for name in "qkv"}), vectors(), CAUSAL


@twin(4, "two halves of the queries, each with the keys so far", reads="causal")
def prefill_in_halves(bad):
    class Model(Calls):
        def forward(self, x):
            q, k, v = self.q(x)[:, None], self.k(x)[:, None], self.v(x)[:, None]
            n, half = x.shape[1], x.shape[1] // 2
            first = F.scaled_dot_product_attention(
                q[:, :, :half], k[:, :, :half], v[:, :, :half], is_causal=True
            )
            mask = None if bad else mask_of(CAUSAL, n)[half:]
            return torch.cat([first, F.scaled_dot_product_attention(q[:, :, half:], k, v, mask)], 2)[:, 0]

    return Model(**{name: nn.Linear(DIM, DIM) for name in "qkv"}), vectors(), CAUSAL


@twin(4, "learned latents read everything, and rows read the latents", reads="causal")
def latents(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(out=Attention(CAUSAL, "sdpa"))
            self.latent = nn.Parameter(torch.randn(3, DIM))

        def forward(self, x):
            y = self.out(x)
            if bad:
                latent = self.latent.expand(len(x), 1, 3, DIM)
                latent = F.scaled_dot_product_attention(latent, x[:, None], x[:, None])
                y = y + F.scaled_dot_product_attention(x[:, None], latent, latent)[:, 0]
            return y

    return Model(), vectors(), CAUSAL


# ---- 5. several outputs


@twin(5, "a dict whose second output leaks", reads="causal")
def second_of_a_dict(bad):
    class Model(Calls):
        def forward(self, x):
            hidden = self.attn(x)
            return {"hidden": hidden, "logits": self.head(hidden) + bad * hidden.mean(1, keepdim=True)}

    return Model(attn=Attention(CAUSAL, "sdpa"), head=nn.Linear(DIM, DIM)), vectors(), CAUSAL


@twin(5, "a tuple whose third output leaks", reads="causal")
def third_of_a_tuple(bad):
    class Model(Calls):
        def forward(self, x):
            hidden = self.attn(x)
            return hidden, None, (x, self.conv(hidden))

    return Model(attn=Attention(CAUSAL, "softmax"), conv=Residual(Conv(bad))), vectors(), CAUSAL


@twin(5, "an object whose attribute leaks", reads="causal")
def attribute_of_an_object(bad):
    @dataclass
    class Output:
        last: torch.Tensor
        aux: torch.Tensor

    class Model(Calls):
        def forward(self, x):
            hidden = self.attn(x)
            return Output(hidden, self.conv(hidden))

    return Model(attn=Attention(CAUSAL, "sdpa"), conv=Residual(Conv(bad))), vectors(), CAUSAL


@twin(5, "only a loss comes out", reads="causal", content="ids")
def loss_only(bad):
    class Model(Calls):
        def forward(self, ids, labels):
            logits = self.head(self.attn(self.embed(ids)))
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    parts = {
        "embed": nn.Embedding(VOCABULARY, DIM),
        "attn": attention(bad),
        "head": nn.Linear(DIM, VOCABULARY),
    }
    return Model(**parts), {"ids": tokens(), "labels": tokens(seed=3)}, CAUSAL


# ---- 6. one item, one batch size


class OneItem(nn.Module):
    """Causal attention; where `when(batch)` gives items, those read everything."""

    def __init__(self, when: Callable[[int], list[int]], how: str) -> None:
        super().__init__()
        self.when, self.causal, self.full = when, Attention(CAUSAL, how), Attention(FULL, how)

    def forward(self, x):
        out = self.causal(x)
        items = self.when(len(x))
        if items:
            out = torch.stack([self.full(x)[b] if b in items else out[b] for b in range(len(x))])
        return out


@twin(6, "only the second item of a batch reads the future, hidden", reads="causal")
def one_item(bad):
    return OneItem(lambda size: [1] * bad, "exp"), vectors(), CAUSAL


@twin(6, "only the last item of a batch reads the future, hidden", reads="causal")
def last_item(bad):
    return OneItem(lambda size: [size - 1] * bad, "exp"), vectors(batch=3), CAUSAL


@twin(6, "the future is read at the given batch size and at no other", reads="causal")
def given_batch_size(bad):
    return OneItem(lambda size: [0, 1] if bad and size == 2 else [], "exp"), vectors(), CAUSAL


@twin(6, "the future is read at batch size one only", reads="causal")
def batch_size_one(bad):
    return OneItem(lambda size: [0] if bad and size == 1 else [], "exp"), vectors(), CAUSAL


@twin(6, "an item reads the other item of its batch, hidden")
def items_read_each_other(bad):
    class Model(Calls):
        def forward(self, x):
            return self.attn(x) + bad * x.roll(1, 0)

    return Model(attn=Attention(CAUSAL)), vectors(), CAUSAL


# ---- 7. missing edges


@twin(7, "a hidden window where everything before is expected")
def hidden_window(bad):
    return Then(Attention(er.Window(3))), vectors(), CAUSAL if bad else er.Window(3)


@twin(7, "one hidden edge is missing")
def one_hidden_edge_missing(bad):
    mask = CAUSAL.on(N).dense().copy()
    mask[7, 2] = not bad

    class Model(Attention):
        def forward(self, x):
            n = x.shape[1]
            allowed = torch.from_numpy(mask[:n, :n]) if n <= N else mask_of(CAUSAL, n)
            return by_hand(self.q(x), self.k(x), self.v(x), allowed)

    return Model(), vectors(), CAUSAL


@twin(7, "full attention is expected, causal attention is hidden")
def causal_where_full_is_expected(bad):
    return Then(Attention(CAUSAL if bad else FULL)), vectors(), FULL


@twin(7, "a hidden window one too wide", faulty=NOT_HOLDS)
def hidden_window_too_wide(bad):
    return Then(Attention(er.Window(4 if bad else 3))), vectors(), er.Window(3)


# ---- 8. training, grad, autocast


@twin(8, "BatchNorm over time, in training only", reads="causal")
def batch_norm(bad):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(DIM) if bad else nn.LayerNorm(DIM)

        def forward(self, x):
            return self.norm(x.mT).mT if bad else self.norm(x)

    return Then(Attention(CAUSAL, "sdpa"), Norm()), vectors(), CAUSAL


class When(nn.Module):
    """Causal attention, and a look at the next position when `leaks()` says so."""

    def __init__(self, leaks: Callable[[nn.Module], bool], how: str = "sdpa", row: int | None = None) -> None:
        super().__init__()
        self.leaks, self.row, self.attn, self.drop = leaks, row, Attention(CAUSAL, how), nn.Dropout(0.1)

    def forward(self, x):
        out = self.drop(self.attn(x))
        if self.leaks(self):
            later = F.pad(x, (0, 0, 0, 1))[:, 1:]
            rows = torch.ones(x.shape[1], dtype=x.dtype)
            if self.row is not None:
                rows = (torch.arange(x.shape[1]) == self.row).to(x.dtype)
            out = out + 0.5 * later * rows[:, None]
        return out


@twin(8, "in training row 7 reads position 8", reads="causal")
def training_only_at_one_row(bad):
    return When(lambda model: bad and model.training, row=7), vectors(), CAUSAL


@twin(8, "in training an attention mask is dropped, hidden", reads="causal")
def training_only_hidden(bad):
    class Model(Calls):
        def forward(self, x):
            return (self.full if bad and self.training else self.causal)(x)

    return Model(full=Attention(FULL), causal=Attention(CAUSAL)), vectors(), CAUSAL


@twin(8, "in training one item reads another")
def training_only_batch(bad):
    class Model(Calls):
        def forward(self, x):
            return self.attn(x) + (x.mean(0, keepdim=True) if bad and self.training else 0)

    return Model(attn=Attention(CAUSAL, "sdpa")), vectors(), CAUSAL


@twin(8, "a leak behind torch.is_grad_enabled()", reads="causal")
def with_gradients(bad):
    return When(lambda _: bad and torch.is_grad_enabled()), vectors(), CAUSAL


@twin(8, "a leak where gradients are off", reads="causal")
def without_gradients(bad):
    return When(lambda _: bad and not torch.is_grad_enabled()), vectors(), CAUSAL


@twin(8, "a leak behind autocast", reads="causal")
def under_autocast(bad):
    return When(lambda _: bad and torch.is_autocast_enabled("cpu")), vectors(), CAUSAL


# ---- 9. labels, no dependence


class Labelled(Calls):
    def __init__(self, bad: bool, how: str = "sdpa") -> None:
        super().__init__(
            embed=nn.Embedding(VOCABULARY, DIM), attn=Attention(CAUSAL, how), head=nn.Linear(DIM, VOCABULARY)
        )
        self.bad = bad

    def run(self, ids, labels):
        x = self.embed(ids)
        x = x + self.attn(x)
        if self.bad:
            x = x + self.embed(labels.clamp(min=0))
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


@twin(9, "logits that depend on labels")
def logits_depend_on_labels(bad):
    class Model(Labelled):
        def forward(self, input_ids, labels=None):
            logits, loss = self.run(input_ids, labels)
            return {"loss": loss, "logits": logits}

    return Model(bad), {"input_ids": tokens(), "labels": tokens(seed=3)}, CAUSAL


@twin(9, "logits that depend on targets, hidden attention")
def logits_depend_on_targets(bad):
    class Model(Labelled):
        def forward(self, idx, targets=None):
            return self.run(idx, targets)

    return Model(bad, "exp"), {"idx": tokens(), "targets": tokens(seed=3)}, CAUSAL


@twin(9, "the user says which input holds the labels")
def labels_said_by_the_user(bad):
    from erlangen.audit.inputs import Inputs

    class Model(Labelled):
        def forward(self, idx, gold=None):
            return self.run(idx, gold)

    return Model(bad), Inputs((), {"idx": tokens(), "gold": tokens(seed=3)}, labels=["gold"]), CAUSAL


@twin(9, "labels shifted into the decoder's inputs are right", correct=NOT_VIOLATED, sides="correct")
def labels_are_shifted_into_the_decoder(bad):
    class Model(Calls):
        def forward(self, input_ids, labels):
            start = F.pad(labels[:, :-1], (1, 0))
            x = self.attn(self.embed(start)) + self.read(self.embed(start), self.embed(input_ids))
            logits = self.head(x)
            return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

    parts = {"embed": nn.Embedding(VOCABULARY, DIM), "head": nn.Linear(DIM, VOCABULARY)}
    model = Model(attn=Attention(CAUSAL, "sdpa"), read=Attention(FULL, "sdpa"), **parts)
    return model, {"input_ids": tokens(7), "labels": tokens(seed=3)}, {"attn": CAUSAL, "read": FULL}


@twin(9, "outputs that depend on nothing")
def outputs_depend_on_nothing(bad):
    return Then(Attention(CAUSAL), then=lambda y: torch.ones_like(y) if bad else y), vectors(), CAUSAL


@twin(9, "an output that depends on nothing, behind visible attention")
def visible_attention_is_thrown_away(bad):
    model = Then(nn.Linear(DIM, DIM), Attention(CAUSAL, "sdpa"), then=lambda y: y * 0 if bad else y)
    return model, vectors(), CAUSAL


# ---- 10. data-dependent, not finite


class Depends(nn.Module):
    """Causal attention; where the first entry of the first vector is not near -0.5, everything is read."""

    def __init__(self, bad: bool, how: str) -> None:
        super().__init__()
        self.bad, self.how, self.inner, self.gate = bad, how, Attention(CAUSAL, how), nn.Linear(DIM, 1)

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self.inner.q(x), self.inner.k(x), self.inner.v(x)
        mask = mask_of(CAUSAL, n).expand(len(x), n, n)
        if self.bad:
            mask = mask | ((x[:, 0, 0] + 0.5).abs() > 0.3)[:, None, None]
        if self.how == "exp":
            return by_hand(q, k * self.gate(x).sigmoid(), v, mask)
        k = k * self.gate(x).sigmoid()
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=mask[:, None])[
            :, 0
        ]


def _harmless() -> torch.Tensor:
    """A content on which the fault does not show."""
    x = vectors()
    x[:, 0, 0] = -0.5
    return x


@twin(10, "a mask that depends on the content, wrong on another content", reads="causal")
def mask_depends_on_content(bad):
    return Depends(bad, "sdpa"), _harmless(), CAUSAL


@twin(10, "the same, hidden", reads="causal")
def hidden_mask_depends_on_content(bad):
    return Depends(bad, "exp"), _harmless(), CAUSAL


class Selects(nn.Module):
    """The four best keys, chosen among all and masked afterwards when bad, else among the past (T5)."""

    def __init__(self, bad: bool) -> None:
        super().__init__()
        self.bad, self.q, self.k, self.v = bad, *(nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, x):
        n = x.shape[1]
        past = mask_of(CAUSAL, n)
        scores = self.q(x) @ self.k(x).mT / DIM**0.5
        among = scores if self.bad else scores.masked_fill(~past, float("-inf"))
        best = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, among.topk(min(4, n)).indices, True)
        keep = (best & past) | torch.eye(n, dtype=torch.bool)
        return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ self.v(x)


@twin(
    10, "keys chosen among all and masked afterwards", faulty=NOT_HOLDS, reads="causal", correct=frozenset()
)
def select_then_mask(bad):
    return Selects(bad), vectors(), CAUSAL


@twin(10, "eleven of twelve rows are NaN", faulty=NOT_HOLDS, reads="causal")
def nan_rows(bad):
    def spoil(y):
        rows = torch.arange(y.shape[1])[:, None] > 0
        return torch.where(rows, torch.full_like(y, float("nan")), y) if bad else y

    return Then(Attention(CAUSAL, "sdpa"), then=spoil), vectors(), CAUSAL


@twin(10, "row 0 has no key and is NaN", faulty=NOT_HOLDS)
def row_without_a_key(bad):
    class Model(Attention):
        def forward(self, x):
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(-1 if bad else 0)
            scores = (self.q(x) @ self.k(x).mT / 4).masked_fill(~mask, float("-inf"))
            return scores.softmax(-1) @ self.v(x)

    return Model(), vectors(), CAUSAL


@twin(10, "rows of one item are NaN, hidden", faulty=NOT_HOLDS)
def nan_in_one_item(bad):
    def spoil(y):
        items = torch.arange(len(y))[:, None, None] == 1
        return torch.where(items, torch.full_like(y, float("nan")), y) if bad else y

    return Then(Attention(CAUSAL), then=spoil), vectors(), CAUSAL


@twin(10, "banned tokens have logits of minus infinity: no fault", sides="correct", correct=NOT_VIOLATED)
def banned_logits(bad):
    banned = torch.tensor([0.0, float("-inf")]).repeat(DIM // 2)
    return Then(Attention(CAUSAL, "sdpa"), then=lambda y: y + banned), vectors(), CAUSAL


# ---- 11. padding


def real(left: bool = False, n: int = N, kept: int = 8) -> torch.Tensor:
    """Which positions are real: all of item 0, `kept` of item 1."""
    mask = torch.ones(2, n, dtype=torch.bool)
    mask[1, : n - kept] = not left
    mask[1, kept:] = mask[1, kept:] & left
    return mask


class Padded(Calls):
    """Two layers that skip padding, but for those in `forgets`; positions follow the mask, or not."""

    def __init__(
        self,
        forgets: tuple[int, ...] = (),
        relation: er.Relation = FULL,
        how: str = "softmax",
        positions: str = "",
    ) -> None:
        super().__init__(embed=nn.Embedding(VOCABULARY, DIM), place=nn.Embedding(64, DIM))
        self.layers = nn.ModuleList(Attention(relation, how) for _ in range(2))
        self.forgets, self.positions = forgets, positions

    def run(self, x, keep):
        x = x if x.is_floating_point() else self.embed(x)
        if self.positions:
            place = torch.arange(x.shape[1]).expand(x.shape[:2])
            if keep is not None and self.positions == "right":
                place = (keep.long().cumsum(1) - 1).clamp(min=0)
            x = x + self.place(place)
        for number, layer in enumerate(self.layers):
            x = x + layer(x, keep=None if number in self.forgets else keep)
        return x


@twin(11, "attention_mask beside idx, forgotten in the second layer", reads="padding")
def attention_mask_beside_idx(bad):
    class Model(Padded):
        def forward(self, idx, attention_mask=None):
            return self.run(idx, None if attention_mask is None else attention_mask.bool())

    return Model((1,) if bad else ()), {"idx": tokens(), "attention_mask": real().long()}, FULL


@twin(11, "attention_mask beside idx, ignored", reads="padding")
def attention_mask_ignored(bad):
    class Model(Padded):
        def forward(self, idx, attention_mask=None):
            return self.run(idx, None if attention_mask is None else attention_mask.bool())

    return Model((0, 1) if bad else (), how="exp"), {"idx": tokens(), "attention_mask": real().long()}, FULL


@twin(11, "an argument called mask, True = real", reads="padding")
def argument_called_mask(bad):
    class Model(Padded):
        def forward(self, x, mask=None):
            return self.run(x, mask)

    return Model((1,) if bad else ()), {"x": vectors(), "mask": real()}, FULL


@twin(11, "an argument called mask, True = padding", reads="padding")
def argument_called_mask_inverted(bad):
    class Model(Padded):
        def forward(self, x, mask=None):
            return self.run(x, None if mask is None else ~mask)

    return Model((1,) if bad else (), how="exp"), {"x": vectors(), "mask": ~real()}, FULL


@twin(11, "an argument called input_mask, 0/1", reads="padding")
def argument_called_input_mask(bad):
    class Model(Padded):
        def forward(self, tokens, input_mask=None):
            return self.run(tokens, None if input_mask is None else input_mask > 0)

    return Model((0,) if bad else ()), {"tokens": tokens(), "input_mask": real().float()}, FULL


@twin(11, "an argument called input_mask that is ignored", reads="padding", faulty=NOT_HOLDS)
def input_mask_ignored(bad):
    class Model(Padded):
        def forward(self, tokens, input_mask=None):
            return self.run(tokens, None if input_mask is None else input_mask > 0)

    return Model((0, 1) if bad else ()), {"tokens": tokens(), "input_mask": real().long()}, FULL


class Crossed(Calls):
    def __init__(self, bad: bool, how: str = "softmax") -> None:
        super().__init__(read=Attention(FULL, how), again=Attention(FULL, how))
        self.bad = bad

    def run(self, x, source, keep):
        x = x + self.read(x, source, keep)
        return x + self.again(x, source, None if self.bad else keep)


@twin(11, "context_mask, forgotten by the second reading", reads="padding")
def argument_called_context_mask(bad):
    class Model(Crossed):
        def forward(self, x, context, context_mask=None):
            return self.run(x, context, context_mask)

    inputs = {"x": vectors(), "context": vectors(10, seed=4), "context_mask": real(n=10, kept=6)}
    return Model(bad), inputs, {"read": FULL, "again": FULL}


@twin(11, "encoder_attention_mask, forgotten by the second reading", reads="padding")
def argument_called_encoder_attention_mask(bad):
    class Model(Crossed):
        def forward(self, hidden_states, encoder_hidden_states, encoder_attention_mask=None):
            keep = None if encoder_attention_mask is None else encoder_attention_mask.bool()
            return self.run(hidden_states, encoder_hidden_states, keep)

    inputs = {
        "hidden_states": vectors(),
        "encoder_hidden_states": vectors(10, seed=4),
        "encoder_attention_mask": real(n=10, kept=6).long(),
    }
    return Model(bad), inputs, {"read": FULL, "again": FULL}


@twin(11, "padding on the left, forgotten by a causal model", reads="padding")
def left_padding(bad):
    class Model(Padded):
        def forward(self, input_ids, attention_mask=None):
            return self.run(input_ids, None if attention_mask is None else attention_mask.bool())

    inputs = {"input_ids": tokens(), "attention_mask": real(left=True).long()}
    return Model((1,) if bad else (), CAUSAL, "exp"), inputs, CAUSAL


@twin(
    11,
    "a causal model that ignores its mask, given padding on the right only",
    faulty=NOT_HOLDS,
    reads="padding",
)
def right_padding_is_vacuous(bad):
    class Model(Padded):
        def forward(self, input_ids, attention_mask=None):
            return self.run(input_ids, None if attention_mask is None else attention_mask.bool())

    inputs = {"input_ids": tokens(), "attention_mask": real().long()}
    return Model((0, 1) if bad else (), CAUSAL, "softmax"), inputs, CAUSAL


@twin(11, "wrong positions behind padding on the left", reads="padding")
def wrong_positions_under_left_padding(bad):
    class Model(Padded):
        def forward(self, input_ids, attention_mask=None):
            return self.run(input_ids, None if attention_mask is None else attention_mask.bool())

    inputs = {"input_ids": tokens(), "attention_mask": real(left=True).long()}
    return Model((), CAUSAL, "softmax", positions="wrong" if bad else "right"), inputs, CAUSAL


@twin(11, "a mean over time that counts padding", reads="padding")
def padding_outside_attention(bad):
    class Model(Padded):
        def forward(self, input_ids, attention_mask=None):
            keep = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            out = self.run(input_ids, keep.bool())
            weights = (torch.ones_like(keep) if bad else keep).to(out.dtype)[..., None]
            return out + (out * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)

    return Model(), {"input_ids": tokens(), "attention_mask": real().long()}, FULL


@twin(11, "the user says which mask pads which input", reads="padding")
def padding_said_by_the_user(bad):
    from erlangen.audit.inputs import Inputs

    class Model(Padded):
        def forward(self, x, valid=None):
            return self.run(x, valid)

    given = {"x": vectors(), "valid": real()}
    return Model((1,) if bad else ()), Inputs((), given, padding={"valid": "x"}), FULL


@twin(
    11, "two sequences of one length, and a mask that is about the second", reads="padding", content="context"
)
def mask_of_one_of_two_equal_lengths(bad):
    from erlangen.audit.inputs import Inputs

    class Model(Calls):
        def forward(self, x, context, context_mask=None):
            own, its = (context_mask, None) if bad else (None, context_mask)
            x = x + self.own(x, keep=own)
            return x + self.read(x, context, its)

    model = Model(own=Attention(FULL, "softmax"), read=Attention(FULL, "softmax"))
    given = {"context": vectors(seed=4), "x": vectors(), "context_mask": real()}
    return model, Inputs((), given, padding={"context_mask": "context"}), {"own": FULL, "read": FULL}


@twin(11, "token types are 0 or 1 and are no mask", sides="correct")
def token_types(bad):
    class Model(Padded):
        def __init__(self):
            super().__init__()
            self.kind = nn.Embedding(2, DIM)

        def forward(self, input_ids, token_type_ids, attention_mask=None):
            x = self.embed(input_ids) + self.kind(token_type_ids)
            return self.run(x, None if attention_mask is None else attention_mask.bool())

    kinds = (torch.arange(N) >= 7).long().expand(2, N).contiguous()
    return Model(), {"input_ids": tokens(), "token_type_ids": kinds, "attention_mask": real().long()}, FULL


@twin(11, "tokens that are 0 or 1 are content and no mask", reads="causal")
def binary_tokens(bad):
    class Model(Calls):
        def forward(self, bits):
            return self.attn(self.embed(bits))

    bits = torch.randint(0, 2, (2, N), generator=torch.Generator().manual_seed(5))
    return Model(embed=nn.Embedding(VOCABULARY, DIM), attn=attention(bad, "sdpa")), bits, CAUSAL


# ---- 12. patterns


class Two(Calls):
    def forward(self, x):
        return x + self.last(x + self.first(x))


@twin(12, "a pattern that matches nothing", faulty=NOT_HOLDS, refused=True)
def pattern_without_a_call(bad):
    model = Two(first=Attention(CAUSAL, "sdpa"), last=Attention(CAUSAL, "sdpa"))
    return model, vectors(), {"first": CAUSAL, "last": CAUSAL, **({"middle.*": CAUSAL} if bad else {})}


@twin(12, "every module was renamed: all patterns are stale", faulty=NOT_HOLDS, refused=True)
def all_patterns_are_stale(bad):
    model = Two(first=attention(bad, "sdpa"), last=attention(bad, "sdpa"))
    return model, vectors(), {"decoder.*": CAUSAL} if bad else {"*": CAUSAL}


# ---- 14. rounding


@twin(14, "a leak of 3e-5 in float32 only; the correct one only rounds", reads="causal")
def small_leak_in_float32(bad):
    class Model(Attention):
        def forward(self, x):
            out = super().forward(x)
            if bad and x.dtype == torch.float32:
                return out + 3e-5 * x.sum(1, keepdim=True)
            # The sum of the past as everything less the future: causal, up to rounding.
            past = x.sum(1, keepdim=True) - (x.flip(1).cumsum(1).flip(1) - x)
            return out + (0 if bad else past)

    return Model(CAUSAL, "sdpa"), vectors(), CAUSAL


# ---- 15. sizes not crossed


class Scan(nn.Module):
    """A running mean in chunks; bad adds the next chunk's state from the second chunk on."""

    def __init__(self, bad: bool, size: int, config: bool) -> None:
        super().__init__()
        self.inner, self.bad = nn.Linear(DIM, DIM), bad
        if config:
            self.config = SimpleNamespace(chunk_size=size)
        else:
            self.chunk_size = size

    def forward(self, x):
        n = x.shape[1]
        size = self.config.chunk_size if hasattr(self, "config") else self.chunk_size
        x = self.inner(x)
        out = []
        for start in range(0, n, size):
            chunk = x[:, start : start + size]
            state = x[:, :start].sum(1, keepdim=True)
            if self.bad and start:
                state = state + chunk.sum(1, keepdim=True)
            out.append(state + chunk.cumsum(1))
        return torch.cat(out, 1) / torch.arange(1, n + 1)[:, None]


@twin(15, "a scan with chunk_size 16 that leaks from the second chunk on, at 12 tokens", reads="causal")
def chunk_not_crossed(bad):
    return Scan(bad, 16, config=False), vectors(), CAUSAL


@twin(15, "the same with chunk_size in a configuration", reads="causal")
def chunk_of_a_configuration(bad):
    return Scan(bad, 16, config=True), vectors(), CAUSAL


@twin(15, "a window of 16 that is dropped behind it, at 12 tokens")
def window_not_crossed(bad):
    class Model(Attention):
        def __init__(self):
            super().__init__(er.Window(15), "sdpa")
            self.sliding_window = 16

        def forward(self, x):
            self_relation = CAUSAL if bad else er.Window(self.sliding_window - 1)
            q, k, v = self.q(x), self.k(x), self.v(x)
            mask = mask_of(self_relation, x.shape[1])
            return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=mask)[:, 0]

    return Model(), vectors(), er.Window(15)


# ---- 16. accused without reason


@twin(16, "torch.nn's own layer, (length, batch, dim)", reads="causal")
def sequence_first_layer(bad):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(DIM, 2, 32)

        def forward(self, x):
            mask = (
                torch.zeros(len(x), len(x)) if bad else nn.Transformer.generate_square_subsequent_mask(len(x))
            )
            return self.layer(x, src_mask=mask)

    return Model(), vectors().transpose(0, 1).contiguous(), CAUSAL


@twin(16, "hand-written and sequence first, hidden", faulty=NOT_HOLDS, correct=NOT_VIOLATED)
def sequence_first_by_hand(bad):
    class Model(Attention):
        def forward(self, x):
            return super().forward(x.transpose(0, 1)).transpose(0, 1)

    return Model(FULL if bad else CAUSAL), vectors().transpose(0, 1).contiguous(), CAUSAL


@twin(16, "a sequence-first GRU", reads="causal")
def sequence_first_gru(bad):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(DIM, DIM // (1 + bad), bidirectional=bad)

        def forward(self, x):
            return self.rnn(x)[0]

    return Model(), vectors().transpose(0, 1).contiguous(), CAUSAL


@twin(16, "a stack of windows inside custom operators", correct=NOT_VIOLATED)
def windows_inside_operators(bad):
    relation = er.Window(3, 1) if bad else er.Window(3)
    layers = [Residual(Attention(relation, "operator")) for _ in range(2)]
    return Then(*layers), vectors(), er.Window(3)


@twin(16, "causal attention inside custom operators", reads="causal")
def causal_inside_operators(bad):
    layers = [Residual(attention(bad, "operator")) for _ in range(2)]
    return Then(*layers), vectors(), CAUSAL


@twin(16, "a pattern for everything, and attention that is not seen", correct=NOT_VIOLATED, reads="causal")
def star_with_unseen_attention(bad):
    return Then(Residual(attention(bad)), nn.Linear(DIM, DIM)), vectors(), {"*": CAUSAL}


@twin(16, "a generator of its own", faulty=NOT_HOLDS, correct=NOT_VIOLATED)
def own_generator(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(attn=attention(bad, "sdpa"))
            self.generator = torch.Generator().manual_seed(0)

        def forward(self, x):
            return self.attn(x + 0.1 * torch.randn(x.shape, generator=self.generator))

    return Model(), vectors(), CAUSAL


class Additive(Attention):
    """An additive mask of some depth, divided by sqrt(d) with the scores or not."""

    def __init__(self, depth: float, divided: bool) -> None:
        super().__init__()
        self.depth, self.divided = depth, divided

    def forward(self, x):
        bias = torch.zeros(x.shape[1], x.shape[1]).masked_fill(~mask_of(CAUSAL, x.shape[1]), self.depth)
        scores = self.q(x) @ self.k(x).mT
        scores = (scores + bias) / DIM**0.5 if self.divided else scores / DIM**0.5 + bias
        return scores.softmax(-1) @ self.v(x)


@twin(16, "an additive mask of -5000; of -2 it leaks", reads="causal")
def additive_mask(bad):
    return Additive(-2.0 if bad else -5000.0, False), vectors(), CAUSAL


@twin(16, "an additive mask that is divided by sqrt(d)", reads="causal")
def additive_mask_divided(bad):
    return Additive(-4.0 if bad else -1e4, True), vectors(), CAUSAL


@twin(16, "local-attention's own module", reads="causal")
def local_attention_module(bad):
    from local_attention import LocalAttention

    class Model(Calls):
        def forward(self, x):
            return self.local(self.q(x), self.k(x), self.v(x))

    local = LocalAttention(4, causal=not bad, exact_windowsize=True, dim=DIM)
    return Model(local=local, **{name: nn.Linear(DIM, DIM) for name in "qkv"}), vectors(), er.Window(4)


class Placeholders(Calls):
    """Features are put where the placeholder token stands; their numbers must agree."""

    def __init__(self, bad: bool) -> None:
        super().__init__(**leaky(bad))
        self.config = SimpleNamespace(image_token_id=7, vocab_size=VOCABULARY)

    def forward(self, input_ids, image_features):
        at = input_ids == self.config.image_token_id
        if int(at.sum()) != len(image_features):
            raise ValueError(f"{int(at.sum())} image tokens, but {len(image_features)} features")
        x = self.embed(input_ids)
        x = x.masked_scatter(at[..., None], image_features.to(x.dtype))
        return x + self.attn(self.conv(x))


@twin(16, "placeholder tokens whose number must match the features", reads="causal", content="input_ids")
def placeholder_tokens(bad):
    ids = tokens()
    ids[ids == 7] = 8
    ids[:, 2:5] = 7
    features = vectors(6, 1, seed=5)[0]
    return Placeholders(bad), {"input_ids": ids, "image_features": features}, CAUSAL


@twin(16, "two inputs that belong together", content="ids", correct=NOT_VIOLATED, faulty=NOT_HOLDS)
def inputs_that_belong_together(bad):
    class Model(Leaky):
        def forward(self, ids, halves):
            if not torch.equal(ids // 2, halves):
                raise IndexError("halves do not belong to ids")
            return self.run(self.embed(ids) + self.embed(halves))

    ids = tokens()
    return Model(**leaky(bad)), {"ids": ids, "halves": ids // 2}, CAUSAL


@twin(16, "a layer conditioned by one vector for each item (FiLM)", reads="causal", content="x")
def film(bad):
    class Model(Calls):
        def forward(self, x, cond):
            scale, shift = self.film(cond)[:, None].chunk(2, -1)
            return self.attn(x * (1 + scale) + shift)

    model = Model(film=nn.Linear(DIM, 2 * DIM), attn=attention(bad, "sdpa"))
    return model, {"x": vectors(), "cond": torch.randn(2, DIM)}, CAUSAL


@twin(16, "padding at twice the frame rate", reads="padding")
def padding_at_another_frame_rate(bad):
    class Model(Padded):
        def __init__(self):
            super().__init__((1,) if bad else ())
            self.down = nn.Conv1d(DIM, DIM, 2, 2)

        def forward(self, frames, attention_mask=None):
            x = self.down(frames.mT).mT
            return self.run(x, None if attention_mask is None else attention_mask[:, 1::2].bool())

    inputs = {"frames": vectors(2 * N), "attention_mask": real(n=2 * N, kept=16).long()}
    return Model(), inputs, FULL


@twin(16, "a mask over a subsampled sequence", correct=NOT_VIOLATED, faulty=NOT_HOLDS)
def mask_over_a_subsampled_sequence(bad):
    class Model(Padded):
        def __init__(self):
            super().__init__((1,) if bad else ())
            self.down = nn.Conv1d(DIM, DIM, 2, 2)

        def forward(self, frames, mask=None):
            return self.run(self.down(frames.mT).mT, mask)

    return Model(), {"frames": vectors(2 * N), "mask": real(kept=8)}, FULL


@twin(16, "an output whose first axis is batch x frames", reads="causal")
def flattened_output(bad):
    model = Then(attention(bad, "sdpa"), nn.Linear(DIM, VOCABULARY), then=lambda y: y.flatten(0, 1))
    return model, vectors(), CAUSAL


@twin(16, "an output whose first axis is batch x frames, hidden", reads="causal")
def flattened_output_hidden(bad):
    model = Then(attention(bad), nn.Linear(DIM, VOCABULARY), then=lambda y: y.flatten(0, 1))
    return model, vectors(), CAUSAL


@twin(16, "LayerDrop in training", reads="causal")
def layer_drop(bad):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            relations = [CAUSAL, CAUSAL, FULL if bad else CAUSAL, CAUSAL]
            self.layers = nn.ModuleList(Attention(relation, "sdpa") for relation in relations)

        def forward(self, x):
            for layer in self.layers:
                if not (self.training and torch.rand(()) < 0.5):
                    x = x + layer(x)
            return x

    return Model(), vectors(), CAUSAL


@twin(16, "LayerDrop in the training of an encoder-decoder")
def layer_drop_with_cross_attention(bad):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleList(Attention(FULL, "sdpa") for _ in range(2))
            self.decoder = nn.ModuleList(attention(bad, "sdpa") for _ in range(2))
            self.cross = nn.ModuleList(Attention(FULL, "sdpa") for _ in range(2))

        def forward(self, source, target):
            for layer in self.encoder:
                if not (self.training and torch.rand(()) < 0.5):
                    source = source + layer(source)
            for layer, read in zip(self.decoder, self.cross, strict=True):
                if not (self.training and torch.rand(()) < 0.5):
                    target = target + layer(target)
                    target = target + read(target, source)
            return target

    inputs = {"source": vectors(9), "target": vectors(seed=4)}
    return Model(), inputs, {"encoder.*": FULL, "decoder.*": CAUSAL, "cross.*": FULL}


@twin(16, "a module that appends to a list whenever it runs", reads="causal")
def appends_to_a_list(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(attn=attention(bad, "sdpa"))
            self.seen = []

        def forward(self, x):
            self.seen.append(x)
            return self.attn(x)

    return Model(), vectors(), CAUSAL


@twin(16, "a module that reads the cache it appends to", faulty=NOT_HOLDS, correct=NOT_VIOLATED)
def reads_the_list_it_appends_to(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(attn=attention(bad, "sdpa"))
            self.seen = []

        def forward(self, x):
            out = self.attn(x) + sum(part.mean() for part in self.seen)
            self.seen.append(x)
            return out

    return Model(), vectors(), CAUSAL


@twin(16, "a model that runs at its own batch size only", reads="causal")
def one_batch_size(bad):
    class Model(Calls):
        def forward(self, x):
            first, second = x.unbind(0)
            return self.attn(torch.stack([first, second]))

    return Model(attn=attention(bad)), vectors(), CAUSAL


@twin(16, "a model that runs at its own length only", reads="causal")
def one_length(bad):
    class Model(Calls):
        def __init__(self):
            super().__init__(attn=attention(bad))
            self.place = nn.Parameter(torch.randn(N, DIM))

        def forward(self, x):
            return self.attn(x + self.place)

    return Model(), vectors(), CAUSAL


# ---- 21. in people's hands


@twin(21, "er.attend called by keywords", reads="causal")
def attend_by_keywords(bad):
    class Model(Calls):
        def forward(self, x):
            q, k, v = (part(x)[:, None] for part in (self.q, self.k, self.v))
            return er.attend(q=q, k=k, v=v, relation=FULL if bad else CAUSAL)[:, 0]

    return Model(**{name: nn.Linear(DIM, DIM) for name in "qkv"}), vectors(), CAUSAL


WAYS = {"sdpa": F.scaled_dot_product_attention, "attend": er.attend}


class Reached(Calls):
    """Attention that is reached by a way other than its module's name."""

    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__(**{name: nn.Linear(DIM, DIM) for name in "qkv"})
        self.call = call

    def forward(self, x):
        return self.call(*(part(x)[:, None] for part in (self.q, self.k, self.v)))[:, 0]


def windows(bad: bool, make: Callable[[er.Relation], nn.Module]) -> Case:
    """Two windows on top of each other: the flow alone does not tell their width, the calls do."""
    relation = er.Window(4 if bad else 3)
    return Then(Residual(make(relation)), Residual(make(relation))), vectors(), er.Window(3)


@twin(21, "attention reached through a dict")
def through_a_dict(bad):
    def make(relation):
        return Reached(lambda q, k, v: WAYS["sdpa"](q, k, v, attn_mask=mask_of(relation, q.shape[-2])))

    return windows(bad, make)


@twin(21, "er.attend reached through a dict")
def attend_through_a_dict(bad):
    return windows(bad, lambda relation: Reached(lambda q, k, v: WAYS["attend"](q, k, v, relation)))


@twin(21, "er.attend reached through functools.partial")
def attend_through_a_partial(bad):
    return windows(bad, lambda relation: Reached(functools.partial(er.attend, relation=relation)))


@twin(21, "attention reached through functools.partial", reads="causal")
def through_a_partial(bad):
    return Reached(functools.partial(F.scaled_dot_product_attention, is_causal=not bad)), vectors(), CAUSAL


@twin(21, "attention reached through a static method")
def through_a_static_method(bad):
    class Model(Calls):
        sdpa = staticmethod(F.scaled_dot_product_attention)

        def __init__(self, relation):
            super().__init__(**{name: nn.Linear(DIM, DIM) for name in "qkv"})
            self.relation = relation

        def forward(self, x):
            q, k, v = (part(x)[:, None] for part in (self.q, self.k, self.v))
            return self.sdpa(q, k, v, attn_mask=mask_of(self.relation, x.shape[1]))[:, 0]

    return windows(bad, Model)


@twin(21, "FlexAttention with a mask_mod that captures document ids")
def flex_with_captured_documents(bad):
    class Model(Calls):
        def forward(self, x):
            n = x.shape[1]
            document = (torch.arange(n) >= 5).long()

            def mask(b, h, i, j):
                return (i >= j) & (bad | (document[i] == document[j]))

            q, k, v = (part(x)[:, None] for part in (self.q, self.k, self.v))
            block = create_block_mask(mask, None, None, n, n, device="cpu")
            return flex_attention(q, k, v, block_mask=block)[:, 0]

    model = Model(**{name: nn.Linear(DIM, DIM) for name in "qkv"})
    return model, vectors(), CAUSAL & er.Documents([5, 7])
