"""An attention API is one file: the session, the docs and this test know it by the registry alone."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import erlangen as er
from audit_models import vectors
from erlangen.audit import apis, audit, observed
from erlangen.audit.apis.attention_call import APIS, Call, register
from erlangen.audit.capture import session as watching
from erlangen.audit.capture.session import Session
from erlangen.audit.flow_rules.beside import Cut
from erlangen.errors import ParameterError

DOCS = Path(__file__).parents[2] / "docs" / "audit.md"
N = 9
CAUSAL = er.Causal().on(N).dense()
BIAS = -0.25 * np.abs(np.subtract.outer(np.arange(N), np.arange(N)))
QUESTIONS = ("declared", "measured", "log_weights", "alpha", "vectors", "cache_key")
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(autouse=True)
def _compiles_anew():
    """FlexAttention fails on a mask with other captured values than those it was compiled for before."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Model(nn.Module):
    """One call of an attention API over a mask, True = may read, and a bias of every pair."""

    def __init__(self, attend: Callable[..., torch.Tensor], mask: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.attend = attend() if isinstance(attend, type) else attend
        self.mask, self.bias = torch.from_numpy(mask), torch.from_numpy(bias).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(x, self.mask, self.bias)


def added(mask: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return bias.masked_fill(~mask, float("-inf"))


def sdpa(x, mask, bias):
    return F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=added(mask, bias))[
        :, 0
    ]


class MultiHead(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x, mask, bias):
        return self.layer(x, x, x, attn_mask=added(mask, bias), need_weights=False)[0]


def eager(x, mask, bias):
    return torch.softmax(x @ x.transpose(-2, -1) / 4 + added(mask, bias), dim=-1) @ x


def flex(x, mask, bias):
    blocks = create_block_mask(lambda b, h, i, j: mask[i, j], 1, 1, N, N, device="cpu")
    q = x[:, None]
    return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + bias[i, j], block_mask=blocks)[:, 0]


def attend(x, mask, bias):
    relation = er.FromMask(mask.numpy())
    if bias.any():
        relation = er.ALiBi(-bias[0, 1].item(), relation=relation)
    return er.attend(x[:, None], x[:, None], x[:, None], relation)[:, 0]


class GraphAttention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = pytest.importorskip("torch_geometric.nn")
        self.conv = layers.GATConv(16, 16, edge_dim=1, add_self_loops=False)

    def forward(self, x, mask, bias):
        targets, sources = mask.nonzero(as_tuple=True)
        return self.conv(x[0], torch.stack([sources, targets]), bias[targets, sources, None])[None]


def module(x, mask, bias):
    """Three queries at a time: which keys are read can only be seen from outside."""
    rows = [slice(start, start + 3) for start in range(0, N, 3)]
    scores = [x[:, part] @ x.transpose(-2, -1) / 4 + added(mask, bias)[part] for part in rows]
    return torch.cat([torch.softmax(one, dim=-1) @ x for one in scores], dim=1)


USERS = {
    "sdpa": sdpa,
    "mha": MultiHead,
    "eager": eager,
    "flex": flex,
    "attend": attend,
    "pyg": GraphAttention,
    "module": module,
}
"""What calls each API: a function, or a module, of the input, a mask and a bias."""
ASKED_IN_VAIN = {
    "sdpa": set(),
    "mha": {"alpha"},
    "eager": {"cache_key"},
    "flex": {"diagonal"},
    "attend": {"cache_key", "diagonal"},
    "pyg": {"cache_key", "log_weights", "alpha", "vectors", "diagonal"},
    "module": {"declared", "log_weights", "alpha", "vectors", "diagonal"},
}
"""What an API has no answer to."""


def answers(name: str, model: nn.Module, x: torch.Tensor) -> dict[str, Any]:
    """What an API says about the only call of a model."""
    found: list[dict[str, Any]] = []

    def ask(call: Call) -> None:
        assert call.api == name
        values = {question: getattr(call, question) for question in QUESTIONS}
        said = {key: value() if callable(value) else value for key, value in values.items()}
        found.append({**said, "diagonal": call.diagonal(N)})

    with torch.no_grad(), Session(model, ask, len(x)) as session:
        model(x)
    assert session.unexplained == []
    return found[-1]  # a module comes after its parts


def complete(name: str, attend: Callable[..., torch.Tensor], in_vain: set[str]) -> None:
    """An API answers everything, catches one edge too many and one too few, and holds where all is right."""
    x = vectors(N, 1 if name == "pyg" else 2)
    none = np.zeros((N, N))
    for bias in (none, BIAS):
        report = audit(Model(attend, CAUSAL, bias), x, er.Causal(), flow=False, variants=False)
        assert report.verdict == "holds"
        assert [call.api for call in report.calls] == [name]
        for edge in ((2, 5), (0, N - 1), (N - 2, 0)):
            wrong = CAUSAL.copy()
            wrong[edge] = not wrong[edge]
            report = audit(Model(attend, wrong, bias), x, er.Causal(), flow=False, variants=False)
            assert report.verdict == "violated"
            found = report.counterexamples[0]
            assert (found.query, found.key, found.extra) == (*edge, bool(wrong[edge]))

    said = answers(name, Model(attend, CAUSAL, BIAS), x)
    assert {question for question, answer in said.items() if answer is None} == in_vain
    for question in in_vain:  # and says why
        assert inspect.getdoc(vars(APIS[name])[question]), question
    assert {bound.dense().tobytes() for bound in said["measured"].support.unique} == {CAUSAL.tobytes()}
    if said["declared"] is not None:
        assert said["declared"] == said["measured"].support
    if said["log_weights"] is not None:
        values = np.broadcast_to(said["log_weights"].double().numpy(), (len(x), 1, N, N))[..., CAUSAL]
        assert np.allclose(values, BIAS[CAUSAL])
        told = audit(Model(attend, CAUSAL, BIAS), x, flow=False, variants=False).calls[0].weights
        assert told is not None
        assert (told.form, told.slopes) == ("ALiBi", pytest.approx([0.25] * told.heads, rel=1e-3))
        assert told.applied is (None if "alpha" in in_vain else True)
    if said["alpha"] is not None:
        powers = np.where(CAUSAL, np.exp(BIAS), 0)
        wanted = powers / powers.sum(axis=-1, keepdims=True)
        assert np.allclose(said["alpha"].double().numpy(), wanted, atol=1e-5)
    if said["vectors"] is not None:
        assert [len(rows) for rows in said["vectors"]] == [N, N]
    if said["diagonal"] is not None:
        model, changed = Model(attend, np.ones((N, N), bool), none), x.clone()
        changed[:, 2] += 1
        with torch.no_grad(), Cut(N) as cut:
            moved = (model(x) - model(changed)).abs().amax(dim=(0, 2)) > 0
        assert (cut.count, moved.nonzero().flatten().tolist()) == (2, [2])
    if said["cache_key"] is not None:
        again, other = (answers(name, Model(attend, mask, BIAS), x) for mask in (CAUSAL, CAUSAL.T.copy()))
        assert said["cache_key"] == again["cache_key"]
        if name != "module":  # whose mask is no argument, but the state of the module that the key names
            assert said["cache_key"] != other["cache_key"]


@pytest.mark.parametrize("name", sorted(APIS))
def test_every_api_is_complete(name):
    assert set(APIS) == set(USERS) == set(ASKED_IN_VAIN)
    complete(name, USERS[name], ASKED_IN_VAIN[name])


def test_every_file_registers_one_api_and_the_docs_list_it():
    files = {path.stem for path in Path(apis.__path__[0]).glob("*.py")} - {"__init__", "attention_call"}
    assert files == set(APIS)
    table = (
        DOCS.read_text().partition("| API | what is watched | what it declares |\n")[2].partition("\n\n")[0]
    )
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", table, re.MULTILINE)
    assert rows == sorted((api.api, api.watches, api.declares) for api in APIS.values())


def test_no_file_but_its_own_knows_an_api():
    for path in Path(apis.__path__[0]).glob("*.py"):
        assert not any(f"apis.{other}" in path.read_text() for other in set(APIS) - {path.stem}), path
    for reader in (watching, observed):
        text = inspect.getsource(reader)
        assert not any(f'"{name}"' in text or f"apis.{name}" in text for name in APIS)


# ------------------------------------------------------------------------- an API of one's own

TOY = '''
"""Attention without a softmax call, which nobody knows."""

from dataclasses import dataclass

import torch

from erlangen.audit.apis.attention_call import TensorCall, register
from erlangen.audit.capture.content_keys import content_key
from erlangen.audit.capture.masking import level_mask, readable
from erlangen.audit.witnesses.declared import support_of
from erlangen.audit.witnesses.measured import read_off


def toy_attention(q, k, v, mask):
    """`mask` is added to the scores."""
    powers = (q @ k.transpose(-2, -1) + mask).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


@register
@dataclass(eq=False)
class ToyCall(TensorCall):
    api = "toy"
    watches = "`toy_attention`"
    declares = "the mask"

    function: object
    mask: torch.Tensor

    @classmethod
    def watch(cls, session):
        session.watch_function(toy_attention, lambda run, q, k, v, mask: cls.of(session, q, k, v, run, mask))

    @property
    def cache_key(self):
        return self.layout, content_key(self.mask)

    def declared(self):
        return support_of(readable(self.mask), self, self.query.shape[:-2])

    def measured(self):
        return read_off(self.weights(level_mask(self.mask)))

    def log_weights(self):
        return self.mask

    def alpha(self):
        return self.weights(self.mask)

    @classmethod
    def diagonal(cls, n):
        """No function mode sees it."""

    def weights(self, mask):
        return self.at_equal_scores(lambda q, k, v: self.function(q, k, v, mask))
'''


@contextmanager
def toy(folder: Path, source: str = TOY):
    """A module with an attention function and its API, known as long as the block lasts."""
    path = folder / "toy_api.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("toy_api", path)
    assert spec is not None
    assert spec.loader is not None
    made = sys.modules["toy_api"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
        yield made
    finally:
        APIS.pop("toy", None)
        del sys.modules["toy_api"]


def test_an_api_of_ones_own_is_one_file(tmp_path):
    with toy(tmp_path) as made:

        def use(x, mask, bias):
            return made.toy_attention(x, x, x, added(mask, bias))

        complete("toy", use, {"diagonal"})
        report = audit(Model(use, CAUSAL, BIAS), vectors(N), er.Causal())
        assert (report.verdict, report.calls[0].weights.form) == ("holds", "ALiBi")
        leaky = CAUSAL.copy()
        leaky[3, 4] = True
        report = audit(Model(use, leaky, BIAS), vectors(N), er.Causal())
        assert report.verdict == "violated"
        assert (report.counterexamples[0].query, report.counterexamples[0].key) == (3, 4)
        assert "toy" in str(report)
        with pytest.raises(ParameterError, match="there is an attention API 'toy' already: ToyCall"):
            register(made.ToyCall)
    assert audit(Model(use, CAUSAL, BIAS), vectors(N), er.Causal(), flow=False).calls == []


@pytest.mark.parametrize("lacking", [*sorted(Call.__abstractmethods__), "api", "watches", "declares"])
def test_an_api_that_lacks_something_is_refused_at_once(lacking):
    facts = {name: name for name in ("api", "watches", "declares")}
    methods = {name: lambda self: None for name in Call.__abstractmethods__}
    answered = {name: value for name, value in {**facts, **methods}.items() if name != lacking}
    with pytest.raises(ParameterError, match=rf"the attention API HalfCall lacks {lacking}: "):
        register(type("HalfCall", (Call,), answered))
    assert set(APIS) == set(USERS)


def test_a_file_that_forgets_a_method_is_refused_where_it_is_loaded(tmp_path):
    forgetful = TOY.replace("def declared(self)", "def declares_nothing(self)")
    with (
        pytest.raises(ParameterError, match="the attention API ToyCall lacks declared: "),
        toy(tmp_path, forgetful),
    ):
        pass
    assert "toy" not in APIS


@pytest.mark.parametrize("function", [partial(added), nn.Linear(1, 1), (lambda n: lambda: n)(1)])
def test_what_cannot_be_watched_is_refused_with_what_can(function):
    with pytest.raises(ParameterError, match=r"no plain Python function.*watch_modules"):
        Session(nn.Identity(), lambda call: None).watch_function(function, lambda *given: None)


def test_two_apis_on_one_function_are_refused(monkeypatch):
    again = type("Again", (APIS["sdpa"],), {"api": "again"})
    monkeypatch.setitem(APIS, "again", again)
    with pytest.raises(ParameterError, match="two attention APIs watch scaled_dot_product_attention"):
        audit(Model(USERS["sdpa"], CAUSAL, BIAS), vectors(N), er.Causal())
