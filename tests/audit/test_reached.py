"""However a model comes to call an attention function, the call is seen, with the line that made it."""

import functools
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import erlangen as er
from audit_models import stack, vectors
from erlangen.attention import attend
from erlangen.audit import audit
from erlangen.audit.capture.session import Session

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
OWN_CODE = attend.__code__, flex_attention.__code__


@pytest.fixture(autouse=True)
def _compiles_anew():
    """FlexAttention fails on a mask with other captured values than one that it was compiled for before."""
    torch.compiler.reset()


def own(query, key, value, function, relation):
    return function(query, key, value, relation)


def own_by_keywords(query, key, value, function, relation):
    return function(v=value, relation=relation, k=key, q=query)


def flex(query, key, value, function, relation):
    return function(query, key, value, None, block(relation, query.shape[2]))


def flex_by_keywords(query, key, value, function, relation):
    return function(value=value, block_mask=block(relation, query.shape[2]), key=key, query=query)


def block(relation, n):
    allowed = torch.from_numpy(relation.on(n).dense())
    return create_block_mask(lambda b, h, i, j: allowed[i, j], None, None, n, n, device="cpu")


class Reached(nn.Module):
    """Calls an attention function that it holds in some way."""

    def __init__(self, call, function, relation):
        super().__init__()
        self.call, self.relation = call, relation
        self.find = function

    def forward(self, x):
        q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
        out = self.call(q, q, q, self.find(), self.relation)
        return x + out.transpose(1, 2).flatten(2)


def in_a_table(function):
    table = {"attention": [function]}
    return lambda: table["attention"][0]


def partial(function):
    made = functools.partial(function)
    return lambda: made


def static_method(function):
    holder = type("Holder", (), {"attention": staticmethod(function)})
    return lambda: holder.attention


def class_attribute(function):
    holder = type("Holder", (), {"attention": function})
    return lambda: holder.attention


def default_argument(function):
    def find(attention=function):
        return attention

    return find


def closure(function):
    def find():
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    return find


def compiled(function):
    made = torch.compile(function, backend="eager")
    return lambda: made


WAYS = [in_a_table, partial, static_method, class_attribute, default_argument, closure, compiled]
CALLS = [
    (own, attend, "attend"),
    (own_by_keywords, attend, "attend"),
    (flex, flex_attention, "flex"),
    (flex_by_keywords, flex_attention, "flex"),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("call", "function", "api"), CALLS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_way_of_reaching(way, call, function, api):
    relation = er.Window(lookback=2)
    model = Reached(call, way(function), relation)
    report = audit(model, vectors(7), relation, flow=False, variants=False)
    assert report.verdict == "holds"
    assert [(one.api, one.kernel, one.agree) for one in report.calls] == [(api, relation, True)]
    wrong = audit(model, vectors(7), er.Causal(), flow=False, variants=False)
    assert wrong.verdict == "violated"
    assert (attend.__code__, flex_attention.__code__) == OWN_CODE


def test_a_call_inside_a_larger_compiled_function_still_runs():
    made = torch.compile(lambda q: attend(q, q, q, er.Causal()), backend="eager", fullgraph=True)

    class Larger(nn.Module):
        def forward(self, x):
            return made(x[:, None])[:, 0]

    x = vectors(5)
    with torch.no_grad():
        before = Larger()(x)
    report = audit(Larger(), x, er.Causal())
    assert report.verdict != "violated"
    assert report.flow is not None
    assert report.flow.relation == er.Causal()
    with torch.no_grad():
        assert torch.equal(Larger()(x), before)


@pytest.mark.parametrize("n", [64, 128])
def test_flex_attention_with_captured_document_ids(n):
    class Packed(nn.Module):
        def __init__(self, leaks):
            super().__init__()
            self.leaks = leaks

        def forward(self, x):
            ids, last = torch.arange(n) // (n // 4), self.leaks

            def same_document(b, h, i, j):
                return (ids[i] == ids[j]) | ((i - j == 1) & last)

            causal = and_masks(lambda b, h, i, j: i >= j, same_document)
            q = x.view(*x.shape[:2], 4, 4).transpose(1, 2)
            mask = create_block_mask(causal, None, None, n, n, device="cpu")
            return x + flex_attention(q, q, q, block_mask=mask).transpose(1, 2).flatten(2)

    expected = er.Documents([n // 4] * 4) & er.Causal()
    right = audit(Packed(False), vectors(n), expected, flow=False, variants=False)
    assert (right.verdict, right.calls[0].agree) == ("holds", True)
    wrong = audit(Packed(True), vectors(n), expected, flow=False, variants=False)
    assert wrong.verdict == "violated"
    assert wrong.counterexamples[0].query == n // 4


def test_masks_of_flex_attention_that_capture_other_ids_are_not_taken_for_one_another():
    def blocks(ids):
        return create_block_mask(lambda b, h, i, j: ids[i] == ids[j], None, None, 8, 8, "cpu")

    class Layers(nn.Module):
        def forward(self, x):
            q = x[:, None]
            for size in (2, 4):
                mask = blocks(torch.arange(8) // size)
                q = q + flex_attention(q, q, q, block_mask=mask)
            return q[:, 0]

    report = audit(Layers(), vectors(8), flow=False, variants=False)
    assert [call.kernel for call in report.calls] == [er.Blocks(2), er.Blocks(4)]


# ---------------------------------------------------------------------------------------------- source lines


def seen_by(model, x):
    seen = []
    with Session(model, seen.append, x.shape[0]), torch.no_grad():
        model(x)
    return seen


def test_a_call_knows_the_line_that_made_it():
    class Mine(nn.Module):
        def forward(self, x):
            y = torch.softmax(x @ x.transpose(1, 2), -1) @ x
            return attend(y, y, y)

    first = Mine.forward.__code__.co_firstlineno
    sources = [call.source.rpartition(":") for call in seen_by(Mine(), vectors(5))]
    assert [Path(file).name for file, _, _ in sources] == [Path(__file__).name] * 2
    assert [int(line) for _, _, line in sources] == [first + 1, first + 2]


@pytest.mark.parametrize(
    "model", [nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), stack([[er.Causal()]], 5, "sdpa")]
)
def test_the_line_is_outside_torch(model):
    (call,) = seen_by(model, vectors(5))
    assert call.source.endswith(".py") is False
    file, _, line = call.source.rpartition(":")
    assert Path(file).name in ("test_reached.py", "audit_models.py")
    assert int(line) > 0


def test_paths_are_relative_below_the_working_directory(monkeypatch, tmp_path):
    folder = Path(__file__).parent

    class Mine(nn.Module):
        def forward(self, x):
            return attend(x, x, x)

    monkeypatch.chdir(folder)
    assert seen_by(Mine(), vectors(5))[0].source.startswith("test_reached.py:")
    monkeypatch.chdir(tmp_path)
    assert seen_by(Mine(), vectors(5))[0].source.startswith(f"{folder.name}/test_reached.py:")


def test_a_library_in_site_packages_is_named_by_its_folder():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8)
    model = transformers.GPT2Model(config).eval()
    seen = []
    with Session(model, seen.append, 1), torch.no_grad():
        model(torch.zeros(1, 4, dtype=torch.long))
    assert all(call.source.count("/") == 1 and "site-packages" not in call.source for call in seen)
    assert seen
    assert "transformers" in sys.modules
