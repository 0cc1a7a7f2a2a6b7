"""What an audit used to leave out, each with a faulty model and its correct twin.

Inputs that count or have one axis, numbers beside tokens, parameters of zero, outputs in any container, batch
statistics that excuse nothing, one large logit, and sizes and modes that nobody gave.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit, compare

D, N = 16, 12
CAUSAL = er.Causal()


def seeded(shape=(2, N, D), dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)


def tokens(shape=(2, N)):
    return torch.randint(3, 60, shape, generator=torch.Generator().manual_seed(1))


def future(x):
    """Every row holds the next one."""
    return torch.cat([x[:, 1:], 0 * x[:, :1]], 1)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class Made(nn.Module):
    """A causal layer and one function of it; `fault` says whether that function may leak."""

    def __init__(self, fault, rule):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.embed, self.more = Causal(), nn.Embedding(64, D), nn.Embedding(64, D)
        self.number, self.pair, self.three = nn.Linear(1, D), nn.Linear(2, D), nn.Linear(3, D)
        self.wide = nn.Linear(N, D)
        self.fault, self.rule = fault, rule

    def forward(self, *args):
        return self.rule(self, *args)


def judged(fault, rule, inputs, expect=CAUSAL, **more):
    return audit(Made(fault, rule).eval(), inputs, expect, **more)


def twins(rule, inputs, expect=CAUSAL):
    """The faulty model is found, and its twin holds."""
    faulty, correct = judged(True, rule, inputs, expect), judged(False, rule, inputs, expect)
    assert faulty.verdict == "violated", faulty
    assert correct.verdict == "holds", correct
    return faulty


# ------------------------------------------------------------------------------- inputs


def beside(made):
    """A rule: tokens or vectors, and a second input made into vectors."""

    def rule(self, x, more):
        x = x if x.is_floating_point() else self.embed(x)
        vectors = made(self, more)
        vectors = vectors if vectors.dim() == 3 else vectors[None].expand(x.shape[0], -1, -1)
        y = self.layer(x + vectors)
        return y + future(vectors) if self.fault else y

    return rule


SECOND = {
    "counts from 0": (lambda m, t: m.more(t), torch.arange(N).expand(2, -1).contiguous()),
    "counts from 5": (lambda m, t: m.more(t), torch.arange(5, 5 + N).expand(2, -1).contiguous()),
    "one axis": (lambda m, t: m.more(t), tokens((N,))),
    "one axis that counts": (lambda m, t: m.more(t), torch.arange(N)),
    "numbers": (lambda m, t: m.number(t[..., None]), seeded((2, N))),
    "numbers of one axis": (lambda m, t: m.number(t[..., None]), seeded((N,))),
    "channels first": (lambda m, t: m.three(t.mT), seeded((2, 3, N))),
    "complex": (lambda m, t: m.pair(torch.view_as_real(t)), seeded((2, N), torch.complex64)),
}


@pytest.mark.parametrize("kind", SECOND)
def test_a_second_input_with_positions_is_content(kind):
    made, more = SECOND[kind]
    twins(beside(made), (tokens(), more))


def test_numbers_beside_vectors_are_content():
    made, more = SECOND["numbers"]
    twins(beside(made), (seeded(), more))


def test_as_many_features_as_positions_are_no_positions():
    def rule(self, x, condition):
        y = self.layer(x + self.wide(condition)[:, None])
        return y + future(x) if self.fault else y

    twins(rule, (seeded(), seeded((2, N))))


def test_complex_content():
    def rule(self, x):
        y = self.layer(x.real + x.imag)
        return y + future(x.real) if self.fault else y

    twins(rule, seeded(dtype=torch.complex64))


def test_positions_that_decide_the_mask():
    def rule(self, ids, pos):
        x = self.embed(ids)
        reads = pos[:, None, :] <= pos[:, :, None] + int(self.fault)
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=reads)

    twins(rule, (tokens(), torch.arange(N).expand(2, -1).contiguous()))


def test_an_index_is_structure_or_asked_about():
    def offsets(self, ids, cu):
        n, x = ids.shape[-1], self.embed(ids)
        document, place = torch.bucketize(torch.arange(n), cu[1:], right=True), torch.arange(n)
        reads = (document[:, None] == document) & (place[:, None] >= place - int(self.fault))
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=reads)

    twins(offsets, (tokens(), torch.tensor([0, 5, N])), er.Documents([5, N - 5]) & CAUSAL)

    def picked(self, ids, which):
        return self.layer(self.embed(ids) + self.more(which).sum(0))

    report = judged(False, picked, (tokens(), torch.tensor([7, 3, 5, 9])))
    assert report.verdict == "undecided"
    assert "content=[...]" in str(report)


# --------------------------------------------------------------------------- parameters of zero


class Zero(nn.Module):
    """What a parameter of zero lets pass is the future, or the row itself."""

    def __init__(self, fault, kind):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.fault, self.kind = Causal(), fault, kind
        self.gate, self.mix = nn.Parameter(torch.zeros(D)), nn.Parameter(torch.tensor([1.0, 0.0]))
        self.down, self.up = nn.Linear(D, 4, bias=False), nn.Linear(4, D, bias=False)
        self.linear, self.modulate = nn.Linear(D, D), nn.Linear(D, D)
        for layer in (self.up, self.linear, self.modulate):
            nn.init.zeros_(layer.weight)
        nn.init.zeros_(self.modulate.bias)
        self.register_buffer("mask", torch.zeros(D))
        self.frozen = nn.Parameter(torch.zeros(D), requires_grad=False)

    def forward(self, x):
        y, z = self.layer(x), future(x) if self.fault else x
        return {
            "gate": lambda: y + self.gate * z,
            "tanh gate": lambda: y + self.gate.tanh() * z,
            "LoRA": lambda: y + self.up(self.down(z)),
            "mixture": lambda: self.mix[0] * y + self.mix[1] * z,
            "linear": lambda: y + self.linear(z),
            "adaptive norm": lambda: y + self.modulate(x) * z,
            "two gates": lambda: y + self.gate * (x + self.up(self.down(z))),
            "buffer": lambda: y + self.mask * future(x),
            "frozen": lambda: y + self.frozen * future(x),
        }[self.kind]()


@pytest.mark.parametrize(
    "kind", ["gate", "tanh gate", "LoRA", "mixture", "linear", "adaptive norm", "two gates"]
)
def test_a_parameter_of_zero_hides_nothing(kind):
    report = audit(Zero(True, kind).eval(), seeded(), CAUSAL)
    assert report.verdict == "violated"
    assert [one.where for one in report.findings] == ["zeros filled"]
    assert audit(Zero(False, kind).eval(), seeded(), CAUSAL).verdict == "holds"


@pytest.mark.parametrize("kind", ["buffer", "frozen"])
def test_what_training_leaves_at_zero_stays(kind):
    assert audit(Zero(False, kind).eval(), seeded(), CAUSAL).verdict == "holds"


class MaskedConvolution(nn.Module):
    """PixelCNN's: the weights of later positions are zeroed in every forward pass, or once."""

    def __init__(self, every):
        super().__init__()
        torch.manual_seed(0)
        self.convolution, self.every = nn.Conv1d(D, D, 3, padding=1), every
        self.register_buffer("mask", torch.tensor([1.0, 1.0, 0.0]))
        self.convolution.weight.data.mul_(self.mask)

    def forward(self, x):
        if self.every:
            self.convolution.weight.data.mul_(self.mask)
        return x + self.convolution(x.mT).mT


def test_weights_masked_in_every_pass_stay_masked():
    expect = er.Window(1)
    assert audit(MaskedConvolution(True).eval(), seeded(), expect).verdict == "holds"
    assert audit(MaskedConvolution(False).eval(), seeded(), expect).verdict == "violated"


def test_filled_zeros_are_zero_again():
    model = Zero(False, "gate").eval()
    report = audit(model, seeded(), CAUSAL)
    assert report.unchanged
    assert "zeros filled" in report.tried["feedings"]
    assert not model.gate.any()
    assert not model.up.weight.any()


# ------------------------------------------------------------------------------- outputs


class MyCache:
    def __init__(self, keys):
        self.keys = keys


class Private:
    def __init__(self, logits, hidden):
        self.logits, self._hidden = logits, hidden


class Slots:
    __slots__ = ("hidden", "logits")

    def __init__(self, logits, hidden):
        self.logits, self.hidden = logits, hidden


OUTPUTS = {
    "cache": lambda y, z: {"logits": y, "states": MyCache(z)},
    "private": Private,
    "slots": Slots,
    "array": lambda y, z: {"logits": y, "more": z.detach().numpy()},
    "list of numbers": lambda y, z: {"logits": y, "more": z.tolist()},
    "array alone": lambda y, z: z.detach().numpy(),
    "numbers alone": lambda y, z: z.tolist(),
    "sparse": lambda y, z: {"logits": y, "more": z.to_sparse()},
    "nested": lambda y, z: {"logits": y, "more": torch.nested.as_nested_tensor(list(z.unbind(0)))},
    "deep": lambda y, z: {"logits": y, "a": {"b": {"c": {"d": [z]}}}},
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_in_any_container_are_seen(kind):
    def rule(self, x):
        y = self.layer(x)
        return OUTPUTS[kind](y, y + future(x) if self.fault else y)

    twins(rule, seeded())


@pytest.mark.parametrize("made", [lambda z: lambda: z, lambda z: iter([z])], ids=["function", "iterator"])
def test_what_cannot_be_looked_into_is_open(made):
    report = judged(False, lambda self, x: {"logits": self.layer(x), "later": made(x)}, seeded())
    assert report.verdict == "undecided"
    assert "later" in str(report)


@pytest.mark.parametrize("hold", [tuple, MyCache], ids=["tuple", "object"])
def test_a_cache_with_room_for_more(hold):
    def rule(self, x):
        y = self.layer(x)
        keys = self.number(x.mean(-1, keepdim=True)).unflatten(-1, (2, D // 2)).transpose(1, 2)
        keys = future(keys.transpose(1, 2)).transpose(1, 2) if self.fault else keys
        room = torch.cat([keys, keys.new_zeros(len(x), 2, 32 - x.shape[1], D // 2)], 2)
        return y, hold([room]) if hold is tuple else hold(room)

    twins(rule, seeded())


# ---------------------------------------------------------------- statistics, rounding, sizes, modes


@pytest.mark.parametrize("used", [False, True])
def test_a_batch_norm_excuses_nothing_but_itself(used):
    norm = nn.BatchNorm1d(D)

    def rule(self, x):
        self.norm = norm
        y = self.layer(x)
        y = torch.stack([norm(y[:, t]) for t in range(y.shape[1])], 1) if used else y
        return y + x.mean(0, keepdim=True) if self.fault and self.training else y

    class Holding(Made):
        def __init__(self, fault):
            super().__init__(fault, rule)
            self.norm = norm

    faulty = audit(Holding(True).eval(), seeded(), CAUSAL)
    assert [one.kind for one in faulty.findings] == ["batch"]
    assert audit(Holding(False).eval(), seeded(), CAUSAL).verdict == "holds"


def test_a_large_logit_excuses_no_other():
    def rule(self, x):
        y = self.layer(x)
        if self.fault and x.dtype == torch.float32:
            y = y + 3e-5 * future(x)
        return torch.cat([y, torch.full_like(y[..., :1], -1e4)], -1)

    twins(rule, seeded())


WHEN = {
    "training under autocast": lambda m, x: m.training and torch.is_autocast_enabled("cpu"),
    "odd lengths": lambda m, x: x.shape[1] % 2 == 1,
    "a batch of three": lambda m, x: x.shape[0] == 3,
}


@pytest.mark.parametrize("when", WHEN)
def test_leaks_at_sizes_and_in_modes_that_were_not_given(when):
    def rule(self, x):
        y = self.layer(x)
        return y + future(x) if self.fault and WHEN[when](self, x) else y

    twins(rule, seeded())


# --------------------------------------------------------------------------- hidden layers


class Hidden(nn.Module):
    """Attention that no observer recognises, with a mask for each head of each layer."""

    def __init__(self, *layers):
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.masks = nn.ModuleList([nn.Linear(D, 3 * D) for _ in layers]), layers

    def forward(self, x):
        for linear, heads in zip(self.qkv, self.masks, strict=True):
            n, count = x.shape[1], len(heads)
            mask = torch.tensor(np.stack([er.Window(p).on(n).dense() for p in heads]))
            q, k, v = (t.unflatten(-1, (count, -1)).transpose(1, 2) for t in linear(x).chunk(3, -1))
            e = torch.exp(q @ k.mT / 4) * mask
            x = x + ((e / e.sum(-1, keepdim=True)) @ v).transpose(1, 2).flatten(2)
        return x


@pytest.mark.parametrize("layers", [((3,), (5,)), ((3,), (1,)), ((2,), (2, 3))])
def test_hidden_layers_that_differ_never_hold(layers):
    assert audit(Hidden(*layers).eval(), seeded(), er.Window(2)).verdict != "holds"


def test_hidden_layers_that_agree_hold():
    assert audit(Hidden((2,), (2, 2)).eval(), seeded(), er.Window(2)).verdict == "holds"
    assert audit(Hidden((2,), (2,)).eval(), seeded((2, 30, D)), er.Window(2)).verdict == "holds"


@pytest.mark.parametrize("heads", [(2, 1), (1, 2), (2, 2)])
def test_hidden_heads_show_only_what_they_read_together(heads):
    report = audit(Hidden(heads).eval(), seeded(), er.PerHead([er.Window(2), er.Window(1)]))
    assert report.verdict == "undecided"
    assert "expect the union" in str(report)


# ------------------------------------------------------------------------------ comparison


def test_rows_behind_a_pooled_output_are_compared():
    def rule(self, x):
        y = self.layer(x)
        z = self.layer(x.flip(-1))
        if self.fault and self.training:
            z = z + future(x)
        return {"rows": y, "pooled": z.tanh().mean(1)}

    assert compare(Made(True, rule), seeded(), modes=["eval", "train"]).differs
    assert compare(Made(False, rule), seeded(), modes=["eval", "train"]).same
