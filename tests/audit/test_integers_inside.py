"""Integers inside a model and as its output, and dependences that fade: what is too small is not missing."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

DIM = 16


class Tokens(nn.Module):
    def __init__(self, bad):
        super().__init__()
        self.embed, self.qkv, self.bad = nn.Embedding(20, DIM), nn.Linear(DIM, 3 * DIM), bad
        self.head = nn.Linear(DIM, 20)

    def attend(self, x, causal=True):
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=causal)


class Codes(Tokens):
    """A bottleneck of codes between two layers; the faulty one reads the next code."""

    def __init__(self, bad):
        super().__init__(bad)
        self.register_buffer("codes", torch.randn(12, DIM))

    def forward(self, idx):
        x = self.attend(self.embed(idx))
        taken = self.codes[torch.cdist(x, self.codes.expand(len(x), -1, -1)).argmin(-1)]
        x = x + (taken - x).detach()
        return self.attend(x + 0.1 * taken.roll(-1, 1) if self.bad else x)


class Routed(Tokens):
    """A router chooses experts behind attention; the faulty one then puts row 3 in place of row 5."""

    def __init__(self, bad):
        super().__init__(bad)
        self.gate = nn.Linear(DIM, 3)
        self.experts = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, idx):
        x = self.attend(self.embed(idx))
        weights, chosen = self.gate(x).softmax(-1).topk(1)
        every = torch.stack([expert(x) for expert in self.experts], dim=2)
        x = x + weights * every.gather(2, chosen[..., None].expand(-1, -1, 1, DIM)).squeeze(2)
        return torch.cat([x[:, :5], x[:, 3:4], x[:, 6:]], 1) if self.bad else x


@pytest.mark.parametrize("bad", [True, False])
def test_integers_of_a_router_excuse_no_missing_edge(bad):
    torch.manual_seed(0)
    report = audit(Routed(bad), torch.randint(20, (2, 12)), er.Causal())
    assert report.verdict != "holds" if bad else report.verdict == "holds"


class Greedy(Tokens):
    """The most probable token of each row."""

    def forward(self, idx):
        return self.head(self.attend(self.embed(idx), causal=not self.bad)).argmax(-1)


@pytest.mark.parametrize("n", [10, 12])
@pytest.mark.parametrize("bad", [True, False])
def test_a_bottleneck_of_codes_lacks_no_edges(bad, n):
    torch.manual_seed(0)
    model, idx = Codes(bad), torch.randint(20, (2, n))
    assert audit(model, idx, AtMost(er.Causal())).verdict == ("violated" if bad else "holds")
    report = audit(model, idx, er.Causal())
    assert report.verdict == ("violated" if bad else "undecided")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("bad", [True, False])
def test_chosen_tokens_are_judged_by_their_logits(bad, seed):
    torch.manual_seed(seed)
    report = audit(Greedy(bad), torch.randint(20, (2, 10)), er.Causal())
    assert report.verdict == ("violated" if bad else "holds")


class Decay(nn.Module):
    """A running mean: what is far back is too small to be seen, first under autocast."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(DIM, DIM)

    def forward(self, x):
        y, state, rows = self.project(x), 0, []
        for t in range(y.shape[1]):
            state = 0.3 * state + y[:, t]
            rows.append(state)
        return torch.stack(rows, 1)


@pytest.mark.parametrize("n", [20, 40])
def test_what_fades_is_never_missing(n):
    torch.manual_seed(0)
    report = audit(Decay(), torch.randn(2, n, DIM), er.Causal())
    assert report.verdict != "violated"
    assert report.verdict == "holds" or n > 20


class Nothing(nn.Module):
    """An output of fixed size that depends on nothing."""

    def forward(self, x):
        return torch.zeros(2, 8, 4)


@pytest.mark.parametrize("expect", [er.Causal(), er.Full(), AtMost(er.Causal())])
def test_an_output_that_depends_on_nothing_holds_nothing(expect):
    report = audit(Nothing(), torch.randint(20, (2, 8)), expect)
    assert report.verdict == "undecided"
    assert any("no output moves with x" in str(one.reason) for one in report.open)


class Responses(nn.Module):
    """Two inputs of the same steps; the faulty model reads the response that it is to predict."""

    def __init__(self, bad):
        super().__init__()
        self.question, self.response = nn.Embedding(20, DIM), nn.Embedding(3, DIM)
        self.qkv, self.bad = nn.Linear(DIM, 3 * DIM), bad

    def forward(self, question, response):
        shifted = F.pad(response + 1, (-1, 1) if self.bad else (1, -1))
        x = self.question(question) + self.response(shifted)
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), is_causal=True)


@pytest.mark.parametrize("bad", [True, False])
def test_an_input_of_the_same_steps_that_is_fed_too_early(bad):
    torch.manual_seed(0)
    inputs = {"question": torch.randint(20, (2, 9)), "response": torch.randint(2, (2, 9))}
    report = audit(Responses(bad), inputs, er.Causal())
    assert report.verdict == ("violated" if bad else "holds")
    assert all(one.content == "response" and one.key == one.query + 1 for one in report.findings)


class Table(Tokens):
    """A table of positions allows no length beyond its own; the faulty model leaks near its end."""

    def __init__(self, bad):
        super().__init__(bad)
        self.positions, self.most = nn.Embedding(64, DIM), 0.75 * 64

    def forward(self, idx):
        n = idx.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        if self.bad and n > self.most:
            mask[3, 40] = True
        x = self.embed(idx) + self.positions(torch.arange(n))
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=mask)


@pytest.mark.parametrize("bad", [True, False])
def test_a_table_of_positions_is_filled(bad):
    torch.manual_seed(0)
    report = audit(Table(bad), torch.randint(20, (2, 16)), er.Causal())
    assert report.verdict == ("violated" if bad else "holds")
    assert max(report.tried["lengths"]) == 64
