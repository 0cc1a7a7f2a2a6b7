"""Random small models, with one random fault or none, and an oracle that needs no audit.

A `Plan` says what the model is, and `plans` is the strategy that composes one; `build` makes it with its
inputs and the expectation that is right for the fault-free model; `wrong` finds the fault by changing content
and looking at the rows of all modules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import erlangen as er

N, DIM, HEADS, VOCABULARY = 12, 16, 2, 20
HIDDEN, VISIBLE = ("exp",), ("softmax", "sdpa", "mha", "attend")
EXPECTED = {
    "causal": er.Causal(),
    "window": er.Window(3),
    "full": er.Full(),
    "documents": er.Causal() & er.Documents([5, 7]),
}
BACKWARD = ("causal", "window", "documents")


@dataclass(frozen=True)
class Plan:
    """What a random model is made of."""

    seed: int
    """Of the weights and the inputs."""
    relation: str
    how: tuple[str, ...]
    """How each layer's attention is written."""
    residual: bool
    norm: bool
    mlp: bool
    mixer: str | None
    """A causal convolution or a recurrent layer before the attention, where the relation allows it."""
    tokens: bool
    argument: str
    """The name of the content's argument."""
    cond: str | None
    labels: bool
    pool: str
    output: str
    dropout: bool
    mapping: bool
    fault: str | None
    layer: int
    """The layer of the fault."""
    edge: tuple[int, int]

    @property
    def visible(self) -> bool:
        """Whether all attention is written in a way that can be watched."""
        return all(how in VISIBLE for how in self.how)

    @property
    def decidable(self) -> bool:
        """Whether calls or rows tell everything: layers of one idempotent relation, or visible ones."""
        return self.visible or self.relation in ("causal", "full")


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Compose a model. Half of all plans have a fault; the simplest is one causal layer without one."""
    faulty = draw(st.booleans())  # first: what is drawn last is the simplest more often than not
    relation = draw(st.sampled_from(["causal", "causal", "window", "full", "documents"]))
    how = draw(st.lists(st.sampled_from([*VISIBLE, *HIDDEN, *HIDDEN]), min_size=1, max_size=3))
    pool = draw(st.sampled_from(["none", "none", "none", "mean", "last", "second", "loss"]))
    mixers = [None, None, "conv", "gru"] if relation in ("causal", "full") else [None]
    outputs = ["tensor", "tuple", "dict", "dataclass"] if pool != "loss" else ["tensor"]
    made = Plan(
        seed=draw(st.integers(0, 9999)),
        relation=relation,
        how=tuple(how),
        residual=draw(st.booleans()),
        norm=draw(st.booleans()),
        mlp=draw(st.booleans()),
        mixer=draw(st.sampled_from(mixers)),
        tokens=draw(st.booleans()),
        argument=draw(st.sampled_from(["x", "idx", "batch"])),
        cond=draw(st.sampled_from([None, None, "vector", "sequence"])),
        labels=pool == "loss" or draw(st.booleans()),
        pool=pool,
        output=draw(st.sampled_from(outputs)),
        dropout=draw(st.booleans()),
        mapping=all(one in VISIBLE for one in how) and draw(st.booleans()),
        fault=None,
        layer=draw(st.integers(0, len(how) - 1)),
        edge=(4, 9),
    )
    if not faulty:
        return made
    made = replace(made, fault=draw(st.sampled_from(faults(made))))
    edges = _edges(made)
    return replace(made, edge=draw(st.sampled_from(edges))) if edges else made


def faults(made: Plan) -> list[str]:
    """The faults that this model can have, and that something in it shows; the rarer ones first, for what
    comes first is drawn more often."""
    found: list[str] = []
    seen_alone = made.how[made.layer] in VISIBLE or (len(made.how) == 1 and made.mixer is None)
    if made.relation == "window":
        found += ["wide"] * 2 + ["narrow"] * 2 * seen_alone
    if made.labels and made.pool == "none":
        found += ["labels"] * 2
    if made.relation in BACKWARD:
        if made.pool == "none" and made.output != "tensor":
            found += ["second output"] * 2
        found += ["edge", "edge", "conv ahead", "time mean", "training", "one item"]
    if made.relation in ("full", "causal") and seen_alone:
        found.append("missing")
    return [*found, "batch mean", "nan"]


def _edges(made: Plan) -> list[tuple[int, int]]:
    """The edges that a fault of one edge may have."""
    if made.fault not in ("edge", "missing"):
        return []
    allowed = mask(made.relation, N)
    if made.fault == "missing":
        return [(i, j) for i in range(N) for j in range(N) if i != j and allowed[i, j]]
    if made.how[made.layer] in VISIBLE and not made.mixer:
        return [(i, j) for i in range(N) for j in range(N) if not allowed[i, j]]
    return [(i, j) for i in range(N) for j in range(i + 1, N)]


def mask(relation: str, n: int, lookback: int = 3) -> torch.Tensor:
    """The relation at some length, from its definition; True = may read."""
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    if relation == "full":
        return torch.ones(n, n, dtype=torch.bool)
    if relation == "window":
        return (i >= j) & (i - j <= lookback)
    if relation == "documents":
        return (i >= j) & ((i >= 5) == (j >= 5))
    return i >= j


class Attention(nn.Module):
    """Two heads, in one of several ways of writing attention, with at most one fault in its masks."""

    def __init__(self, made: Plan, layer: int) -> None:
        super().__init__()
        self.relation, self.how = made.relation, made.how[layer]
        self.fault = made.fault if layer == made.layer else None
        self.edge = made.edge
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mha = nn.MultiheadAttention(DIM, HEADS, batch_first=True) if self.how == "mha" else None

    def masks(self, n: int) -> torch.Tensor:
        """For each head, which keys are read."""
        lookback = {"wide": 4, "narrow": 2}.get(self.fault or "", 3)
        heads = mask(self.relation, n, lookback).repeat(HEADS, 1, 1)
        i, j = self.edge
        if max(i, j) < n:
            if self.fault == "edge":
                heads[0, i, j] = True
            if self.fault == "missing":
                heads[:, i, j] = False
        return heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        masks = self.masks(n)
        if self.mha is not None:
            return self.mha(x, x, x, attn_mask=~masks.repeat(b, 1, 1), need_weights=False)[0]
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if self.how == "sdpa":
            read = F.scaled_dot_product_attention(q, k, v, attn_mask=masks)
        elif self.how == "attend":
            relation = er.PerHead([er.FromMask(one.numpy()) for one in masks])
            read = er.attend(q, k, v, relation)
        else:
            scores = q @ k.mT / q.shape[-1] ** 0.5
            if self.how == "softmax":
                weights = scores.masked_fill(~masks, float("-inf")).softmax(-1)
            else:
                weights = scores.exp() * masks
                weights = weights / weights.sum(-1, keepdim=True)
            read = weights @ v
        return self.out(read.transpose(1, 2).reshape(b, n, DIM))


class Conv(nn.Module):
    """A convolution over the past, or one that looks a step ahead."""

    def __init__(self, ahead: bool) -> None:
        super().__init__()
        self.conv, self.pad = nn.Conv1d(DIM, DIM, 3), (1, 1) if ahead else (2, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(F.pad(x.transpose(1, 2), self.pad)).transpose(1, 2)


class Recurrent(nn.Module):
    """A GRU without its state."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0]


class Fault(nn.Module):
    """A fault outside attention, as a layer of its own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv = kind, Conv(True) if kind == "conv ahead" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        later = F.pad(x, (0, 0, 0, 1))[:, 1:]
        if self.conv is not None:
            return x + self.conv(x)
        if self.kind == "time mean":
            return x + x.mean(1, keepdim=True)
        if self.kind == "batch mean":
            return x + x.mean(0, keepdim=True)
        if self.kind == "training":
            return x + 0.5 * later if self.training else x
        if self.kind == "one item":
            return x + 0.5 * later * (torch.arange(len(x)) == 1)[:, None, None]
        if self.kind == "nan":
            return torch.where(torch.arange(x.shape[1])[:, None] > 5, torch.nan, x)
        return x + later  # the second output's


OUTSIDE = ("conv ahead", "time mean", "batch mean", "training", "one item", "nan")


class Layer(nn.Module):
    """Attention, with or without a residual, a norm, a two-layer network, dropout."""

    def __init__(self, made: Plan, number: int) -> None:
        super().__init__()
        self.residual = made.residual
        self.norm = nn.LayerNorm(DIM) if made.norm else nn.Identity()
        self.attn = Attention(made, number)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.drop = nn.Dropout(0.1) if made.dropout else nn.Identity()
        self.use_mlp = made.mlp

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.attn(self.norm(x)))
        x = x + y if self.residual else y
        return x + self.mlp(x) if self.use_mlp else x


@dataclass
class Output:
    """An output object, as libraries have them."""

    hidden: torch.Tensor
    logits: torch.Tensor | None = None
    loss: torch.Tensor | None = None


class Model(nn.Module):
    """The whole: embedding, mixer, layers, a fault outside attention, a head, pooling, outputs."""

    def __init__(self, made: Plan) -> None:
        super().__init__()
        self.plan = made
        self.embed = nn.Embedding(VOCABULARY, DIM)
        mixers: dict[str | None, Callable[[], nn.Module]] = {"conv": lambda: Conv(False), "gru": Recurrent}
        self.mixer = mixers.get(made.mixer, nn.Identity)()
        self.layers = nn.ModuleList(Layer(made, number) for number in range(len(made.how)))
        self.fault = Fault(made.fault) if made.fault in OUTSIDE else nn.Identity()
        self.extra = Fault("second") if made.fault == "second output" else nn.Identity()
        self.head = nn.Linear(DIM, VOCABULARY)

    def run(self, content: torch.Tensor, cond: torch.Tensor | None, labels: torch.Tensor | None) -> Any:
        """The forward pass; subclasses give the content its name."""
        made = self.plan
        x = self.embed(content) if made.tokens else content
        if cond is not None:
            x = x + (cond[:, None] if cond.dim() == 2 else cond.mean(1, keepdim=True))
        x = self.mixer(x)
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == made.layer:
                x = self.fault(x)
        second = self.extra(x)
        if made.fault == "labels" and labels is not None:
            second = second + self.embed(labels)
        logits = self.head(second)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        if made.pool == "loss":
            return loss
        pools = {"mean": lambda y: y.mean(1), "last": lambda y: y[:, -1], "second": lambda y: y[:, ::2]}
        pooled = pools.get(made.pool, lambda y: y)
        hidden, logits = pooled(x), pooled(logits)
        if made.output == "tensor":
            return logits
        if made.output == "tuple":
            return (hidden, logits) if loss is None else (hidden, logits, loss)
        if made.output == "dict":
            return {"hidden": hidden, "logits": logits, **({} if loss is None else {"loss": loss})}
        return Output(hidden, logits, loss)


class OfX(Model):
    """Its content is called x."""

    def forward(self, x, cond=None, labels=None):
        return self.run(x, cond, labels)


class OfIdx(Model):
    """Its content is called idx, its labels targets, as in nanoGPT."""

    def forward(self, idx, cond=None, targets=None):
        return self.run(idx, cond, targets)


class OfBatch(Model):
    """Its content is called batch."""

    def forward(self, batch, cond=None, labels=None):
        return self.run(batch, cond, labels)


def build(made: Plan) -> tuple[nn.Module, dict[str, torch.Tensor], Any]:
    """The model, its inputs, and what is expected of the model without a fault."""
    torch.manual_seed(made.seed)
    model = {"x": OfX, "idx": OfIdx, "batch": OfBatch}[made.argument](made).eval()
    content = torch.randint(0, VOCABULARY, (2, N)) if made.tokens else torch.randn(2, N, DIM)
    inputs = {made.argument: content}
    if made.cond is not None:
        inputs["cond"] = torch.randn(2, DIM) if made.cond == "vector" else torch.randn(2, 5, DIM)
    if made.labels:
        inputs["targets" if made.argument == "idx" else "labels"] = torch.randint(0, VOCABULARY, (2, N))
    expected = EXPECTED[made.relation]
    return model, inputs, {"layers.*": expected} if made.mapping else expected


# ---- The oracle, from the definition: change content and look.


def wrong(made: Plan) -> str | None:
    """What is wrong with the model of a plan, in words, or None."""
    model, inputs, _ = build(made)
    with torch.no_grad():
        for number, layer in enumerate(model.layers):
            found = _reads_otherwise(layer.attn, mask(made.relation, N))
            if found:
                return f"layer {number}: {found}"
        for training in (False, True):
            found = _flows_otherwise(model.train(training), inputs, made)
            if found:
                return f"{'training' if training else 'eval'}: {found}"
    return None


def _reads_otherwise(attention: nn.Module, allowed: torch.Tensor) -> str | None:
    """Compare what the rows of one attention layer depend on with the relation, but for each row itself."""
    x = torch.randn(1, N, DIM, generator=torch.Generator().manual_seed(0))
    base = attention(x)
    for j in range(N):
        moved = torch.zeros(N, dtype=torch.bool)
        for seed in (1, 2):
            other = x.clone()
            other[:, j] = torch.randn(DIM, generator=torch.Generator().manual_seed(seed))
            moved |= (attention(other) - base).abs().amax((0, 2)) > 1e-6
        for i in range(N):
            if i != j and bool(moved[i]) != bool(allowed[i, j]):
                return f"edge ({i}, {j}) is {'read' if moved[i] else 'not read'}"
    return None


def _flows_otherwise(model: nn.Module, inputs: dict[str, torch.Tensor], made: Plan) -> str | None:
    """Look at the rows of all modules and outputs: other items, forbidden rows, not finite, labels."""
    reach = mask(made.relation, N, 3 * len(made.how))
    base = _rows(model, inputs)
    if not all(bool(rows.isfinite().all()) for _, rows in base):
        return "not finite"
    content = inputs[made.argument]
    for item in range(2):
        for j in range(N):
            changed = content.clone()
            changed[item, j] = (content[item, j] + 7) % VOCABULARY if made.tokens else -content[item, j]
            after = _rows(model, {**inputs, made.argument: changed})
            for (name, a), (_, b) in zip(base, after, strict=True):
                moved = (a - b).abs().flatten(2).amax(-1) > 1e-6
                if bool(moved[1 - item].any()):
                    return f"{name}: item {1 - item} moves with item {item}"
                rows = moved[item].nonzero().flatten().tolist()
                if a.shape[1] == N and any(not reach[i, j] for i in rows):
                    return f"{name}: rows {rows} of item {item} move with position {j}"
    for name in ("labels", "targets"):
        if name in inputs and made.pool == "none":
            after = _rows(model, {**inputs, name: (inputs[name] + 1) % VOCABULARY})
            if any(not torch.equal(a, b) for (_, a), (_, b) in zip(base, after, strict=True)):
                return "rows move with the labels"
    return None


def _rows(model: nn.Module, inputs: dict[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """The outputs of all modules that have rows, by name."""
    found: list[tuple[str, torch.Tensor]] = []

    def note(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if isinstance(output, torch.Tensor) and output.shape[:2] == (2, N):
                found.append((name, output))

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_modules()]
    torch.manual_seed(0)
    model(**inputs)
    for handle in handles:
        handle.remove()
    return found
