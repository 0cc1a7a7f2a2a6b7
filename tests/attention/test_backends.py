"""A backend is one file: the registry, the plan and the docs know it; the plan is what runs."""

from __future__ import annotations

import importlib.util
import inspect
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.attention import backend as protocol
from erlangen.attention import backends, native, products
from erlangen.attention.backend import BACKENDS, Backend, register
from erlangen.attention.backends import decode
from erlangen.attention.binding import clear_cache
from erlangen.errors import BackendError, ErlangenError, ParameterError
from erlangen.testing.strategies import relations

DOCS = Path(__file__).parents[2] / "docs" / "attention.md"

TOY = '''
"""Attention by torch.softmax, over one relation of all items and heads."""

import torch

from erlangen.attention.backend import Backend, Cost, Rank, register


@register
class ToyBackend(Backend):
    name = "toy"
    computes = "what the test wants"
    scales = "queries x keys"
    lse = False

    def refuses(self, call):
        if call.needs.kernel != "SoftmaxDot" or call.needs.bias or call.needs.dropout or not call.needs.plain:
            return "takes the plain kernel alone"
        if call.bound.index.size > 1 or call.bound.has_empty_queries:
            return "takes one relation, in which every query reads something"
        return None

    def cost(self, call):
        return Cost(Rank.SPECIAL, -1, "it is a toy")

    def prepare(self, call):
        return call.bound.mask(call.device)

    def run(self, prepared, call, q, k, v, bias):
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = (q @ k.mT * call.scale).masked_fill(~prepared, -torch.inf)
        return scores.softmax(-1) @ v, None, None
'''


@contextmanager
def toy(folder: Path):
    """A backend in one file of a temporary directory, known as long as the block lasts."""
    path = folder / "toy.py"
    path.write_text(TOY)
    spec = importlib.util.spec_from_file_location("toy_backend", path)
    assert spec is not None
    assert spec.loader is not None
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
        yield
    finally:
        BACKENDS.pop("toy", None)
        clear_cache()


def test_what_was_decided_before_a_backend_was_registered_is_decided_again(tmp_path):
    x = torch.randn(1, 1, 6, 4)
    er.attend(x, x, x, er.Window(2))
    with toy(tmp_path):
        assert er.plan(x, x, x, er.Window(2)).backend == "toy"
        with pytest.MonkeyPatch.context() as patch:
            ran = []
            plain = BACKENDS["toy"].run
            patch.setattr(BACKENDS["toy"], "run", lambda *given: ran.append(1) or plain(*given))
            er.attend(x, x, x, er.Window(2))
        assert ran


def test_a_backend_that_does_not_return_what_it_says_is_an_error(tmp_path):
    x = torch.randn(1, 1, 6, 4)
    with toy(tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(BACKENDS["toy"]), "lse", True)
        patch.setattr(type(BACKENDS["toy"]), "weights", True)
        for asked in ("return_lse", "return_weights"):
            with pytest.raises(BackendError, match="'toy' did not return"):
                er.attend(x, x, x, er.Window(2), **{asked: True})


@pytest.mark.parametrize("lacking", ["name", "computes", "scales"])
def test_a_backend_without_a_fact_is_refused(lacking):
    facts = {name: "half" for name in ("name", "computes", "scales") if name != lacking}
    with pytest.raises(ParameterError, match=f"the backend Half lacks {lacking}"):
        register(type("Half", (Backend,), facts))
    with pytest.raises(ParameterError, match="lacks a name"):
        register(type("Half", (Backend,), {"name": "", "computes": "", "scales": ""}))


def test_the_class_of_a_relation_is_refused_for_one_query_as_for_several():
    k = torch.randn(1, 1, 5, 4)
    for q in (k, k[..., -1:, :]):
        for ask in (er.attend, er.plan):
            with pytest.raises(ParameterError, match=r"got the class Causal; write Causal\(\.\.\.\)"):
                ask(q, k, k, er.Causal)


def tensors(queries=5, keys=7, heads=2, kv=1, batch=2, seed=0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads, queries, 3), (batch, kv, keys, 3), (batch, kv, keys, 2)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def calls() -> Any:
    """Calls of several kinds: every backend takes one of them."""
    square = tensors(7, 7)
    yield square, {"relation": er.Window(2), "scale": 0.3}
    yield tensors(1, 7), {"relation": er.Window(3)}
    yield square, {"relation": er.Causal(), "kernel": er.kernels.Linear()}
    yield square, {"relation": er.Causal() - er.Identity()}  # the first query reads nothing
    yield square, {"relation": er.Causal() - er.Identity(), "return_lse": True}


def differentiated(*inputs: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """What `attend` gives, and its derivatives by q, k and v; a step of decoding has none."""
    given = [x.detach().clone().requires_grad_(x.shape[-2] > 1 < inputs[0].shape[-2]) for x in inputs]
    out = er.attend(*given, **options)
    results = [out] if isinstance(out, torch.Tensor) else list(out)
    if not given[0].requires_grad:
        return results
    terms = [x.masked_fill(x.isinf(), 0) * torch.arange(1.0, 1 + x.numel()).view_as(x) for x in results]
    return results + list(torch.autograd.grad(sum(term.sum() for term in terms), given))


def complete(name: str) -> None:
    """A backend computes what `reference` does, in a call that it takes, and says why it takes no other."""
    taken = []
    for inputs, options in calls():
        try:
            assert er.plan(*inputs, **options, backend=name).backend == name
        except BackendError as error:
            said = str(error)
            with pytest.raises(BackendError, match=f"^backend '{name}' .*{re.escape(said[-9:])}$"):
                er.attend(*inputs, **options, backend=name)
            continue
        names = name, "reference"
        try:
            both = [differentiated(*inputs, **options, backend=each) for each in names]
        except BackendError as error:
            if "has no backward pass on a CPU" not in str(error):
                raise
            both = [er.attend(*inputs, **options, backend=each) for each in names]
        torch.testing.assert_close(*both)
        taken.append(options)
    assert taken, f"backend {name!r} takes none of the calls"
    backend = BACKENDS[name]
    q, k, v = tensors(1, 7)
    for flag, asked in (("weights", "return_weights"), ("lse", "return_lse")):
        if not getattr(backend, flag):
            options: Any = {asked: True}
            with pytest.raises(BackendError, match=f"backend {name!r} returns no "):
                er.attend(q, k, v, er.Window(3), backend=name, **options)


@pytest.mark.skipif(not native.available(), reason="needs the native extension")
@pytest.mark.parametrize("name", sorted(BACKENDS))
def test_every_backend_is_complete(name):
    complete(name)


def test_every_file_registers_one_backend_and_the_docs_list_it():
    files = {path.stem for path in Path(backends.__path__[0]).glob("*.py")} - {"__init__"}
    assert files == set(BACKENDS)
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted((b.name, b.computes, b.scales) for b in BACKENDS.values())
    assert all(f"`{name}`" in (er.plan.__doc__ or "") for name in BACKENDS)


def test_a_backend_of_ones_own_is_one_file(tmp_path):
    inputs = tensors(7, 7)
    with toy(tmp_path):
        complete("toy")
        chosen = er.plan(*inputs, er.Window(2))
        assert (chosen.backend, chosen.reason) == ("toy", "it is a toy")
        expected = er.attend(*inputs, er.Window(2), backend="reference")
        for name in (None, "toy"):
            torch.testing.assert_close(er.attend(*inputs, er.Window(2), backend=name), expected)
        with pytest.raises(BackendError, match=r"not one of .*toy"):
            er.plan(*inputs, er.Window(2), backend="magic")
        with pytest.raises(BackendError, match="backend 'toy' takes one relation"):
            er.attend(*inputs, er.Empty(), backend="toy")  # and never another
        assert er.plan(*inputs, er.Empty()).backend != "toy"
        with pytest.raises(ParameterError, match="there is a backend 'toy' already: ToyBackend"):
            register(type(BACKENDS["toy"]))
    assert er.plan(*inputs, er.Window(2)).backend != "toy"


@pytest.mark.parametrize("method", sorted(Backend.__abstractmethods__))
def test_a_backend_that_lacks_a_method_is_refused_at_once(method):
    methods = {name: lambda self, *_: None for name in Backend.__abstractmethods__ - {method}}
    cls = type("HalfBackend", (Backend,), {"name": "half", "computes": "", "scales": "", **methods})
    with pytest.raises(TypeError, match=method):
        register(cls)
    assert "half" not in BACKENDS


# ------------------------------------------------------------------------- the plan is what runs


@contextmanager
def observed(monkeypatch):
    """The names of the backends that run in the block."""
    ran: list[str] = []
    with monkeypatch.context() as patch:
        for name, one in BACKENDS.items():
            plain = type(one).run

            def run(self, *arguments, plain=plain, name=name):
                ran.append(name)
                return plain(self, *arguments)

            patch.setattr(type(one), "run", run)
        if decode.run_forward is not None:
            kernel = decode.run_forward

            def run_forward(*arguments):
                made = kernel(*arguments)
                ran.append("decode")
                return made

            patch.setattr(decode, "run_forward", run_forward)
        yield ran


KERNELS = [
    None,
    er.kernels.SoftmaxDot(softcap=2.0),
    er.kernels.SoftmaxDot(sink=torch.zeros(2)),
    er.kernels.Linear(),
    er.kernels.Gaussian(),
    er.kernels.Polynomial(3),
    er.kernels.Additive(torch.ones(3)),
]


@given(data=st.data())
@settings(max_examples=150)
def test_the_plan_is_what_runs(data):
    draw = data.draw
    keys = draw(st.integers(0, 12))
    queries = draw(st.sampled_from([1, keys, draw(st.integers(0, keys))])) if keys else 0
    relation = draw(
        st.one_of(
            relations(keys),
            st.sampled_from(
                [None, er.Full(), er.Causal(), er.Window(2), er.Nearest(2), er.ALiBi([1.0, 0.5])]
            ),
            st.sampled_from([er.PerHead([er.Causal(), er.Full()]), er.Batch([er.Padding(2), er.Full()])]),
        )
    )
    inputs = tensors(queries, keys)
    if draw(st.booleans()):
        inputs = [x.float().to(draw(st.sampled_from([torch.float32, torch.bfloat16]))) for x in inputs]
    if draw(st.booleans()):
        inputs[1] = inputs[1].mT.contiguous().mT  # whose last dimension is not contiguous
    options: Any = {
        "kernel": draw(st.sampled_from([None, *KERNELS])),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.5])),
        "backend": draw(st.sampled_from([None, None, None, *BACKENDS])),
        "return_weights": draw(st.sampled_from([False, False, True])),
        "return_lse": draw(st.booleans()),
    }
    if options["backend"] != "flex" and draw(st.booleans()):  # flex has no backward pass on a CPU
        inputs[draw(st.integers(0, 2))].requires_grad_()
    with pytest.MonkeyPatch.context() as patch, observed(patch) as ran:
        try:
            planned = er.plan(*inputs, relation, **options).backend
        except ErlangenError as error:
            ran.clear()
            with pytest.raises(type(error), match=re.escape(str(error))):
                er.attend(*inputs, relation, **options)
            assert not ran
            return
        ran.clear()  # `plan` asks the decoding kernel whether it takes the tensors
        er.attend(*inputs, relation, **options)
    assert ran == [planned]


def test_plan_takes_what_attend_takes():
    ours, theirs = (inspect.signature(f).parameters for f in (er.plan, er.attend))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]
    q, k, v = tensors()
    with pytest.raises(ParameterError, match=r"plan takes no dropout_p=: write dropout=0\.1"):
        er.plan(q, k, v, dropout_p=0.1)
    packed = er.pack(er.Window(2), 5, 7, backend="edges")
    assert er.plan(q, k, v, packed).backend == "edges"


def test_the_former_arguments_of_plan_say_what_they_are_now():
    q, k, v = tensors()
    former: Any = (er.Window(2), q, k, v)
    with pytest.warns(DeprecationWarning, match=r"now plan\(q, k, v, relation\)"):
        assert er.plan(*former) == er.plan(q, k, v, er.Window(2))
    with pytest.warns(DeprecationWarning, match="now return_weights= and return_lse="):
        assert er.plan(q, k, v, weights=True).backend == "reference"
    with pytest.warns(DeprecationWarning, match="now return_weights= and return_lse="):
        assert er.plan(q, k, v, er.Causal(), lse=True, backend="gather").backend == "gather"


def test_the_tiles_of_a_relation_are_cut_once(monkeypatch):
    from erlangen.relations import tiling as tiles

    cut, plain = [], tiles.tile
    monkeypatch.setattr(tiles, "tile", lambda near, size: cut.append(size) or plain(near, size))
    clear_cache()
    x = torch.randn(1, 1, 200, 8)
    assert er.plan(x, x, x, er.Window(90)).backend == "tiles"
    for _ in range(2):
        er.attend(x, x, x, er.Window(90))
    assert cut == [64]


def test_every_cache_is_bounded_and_emptied_by_clear_cache():
    import erlangen.integrations.pyg
    import erlangen.integrations.transformers  # noqa: F401
    from erlangen.caches import CACHES

    made = 0
    for package in ("attention", "nn", "integrations"):
        for path in (Path(er.__file__).parent / package).rglob("*.py"):
            code = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL)
            assert not re.search(
                r"^@(functools\.)?(lru_)?cache\b|^_(?!KINDS)\w+[^=\n]* = (\{\}|\[\]|OrderedDict)", code, re.M
            ), path
            made += len(re.findall(r"^(?:@|\w.* = )(?:cached|Recent)\(", code, re.MULTILINE))
    assert made == 8
    known = [cache for cache in CACHES if getattr(cache, "__module__", "erlangen").startswith("erlangen")]
    assert len(known) >= made - 1  # `literal_eval` has the module of its own

    def size(cache):
        return cache.cache_info().currsize if hasattr(cache, "cache_info") else len(cache)

    x = torch.randn(1, 2, 6, 4)
    er.attend(x, x, x, er.pack(er.Causal(), 6))
    er.attend(x, x, x, er.Causal())
    er.attend_triples(x, x, x, x, x, er.WindowSquared(2))
    assert sum(map(size, CACHES)) >= 3
    clear_cache()
    assert sum(map(size, CACHES)) == 0


def test_the_protocol_knows_no_backend():
    text = inspect.getsource(protocol) + inspect.getsource(products)
    assert not re.search(r"import.*backends", text)
