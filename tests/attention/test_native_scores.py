"""Scores beyond products in the native operators: maps, vectors, biases of edges; and weighted relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.attention import native
from erlangen.attention.backends import edges, tiles
from erlangen.attention.binding import Bound
from erlangen.attention.formula import PairInputs, PairOptions
from erlangen.attention.kernels import Additive, Polynomial, SoftmaxDot
from erlangen.attention.kernels.form import KINDS, Map
from erlangen.errors import BackendError, ParameterError, ShapeError
from erlangen.relations import ALiBi, Graph, Neighborhoods, Weighted

MAPS = [Map(), Map("cap", 1.5), Map("leaky", 0.2), Map("log", 2.0, 0.5)]


def bind(queries: int, keys: int, density: float = 0.4) -> Bound:
    mask = np.random.default_rng(0).random((queries, keys)) < density
    mask[0] = False  # a row that reads nothing
    return Bound((Neighborhoods.from_dense(mask),), np.zeros((1, 1), np.int64), queries, keys)


def oracle(q, k, v, bound: Bound, scale, map, vector=None, bias=None, per_edge=False):
    """From the definition, densely; gives the output and the log-sum-exp."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    if vector is None:
        scores = map(q @ k.mT * scale)
    else:
        scores = (map(q.unsqueeze(3) + k.unsqueeze(2)) * vector[:, None, None]).sum(-1)
    near = bound.distinct[0]
    if per_edge:
        i, j = torch.from_numpy(near.edges()).unbind(1)
        dense = torch.zeros(bias.shape[0], *scores.shape[2:], dtype=scores.dtype)
        dense[:, i, j] = bias
        scores = scores + dense
    elif bias is not None:
        rows, columns = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
        scores = scores + bias[:, columns - rows + q.shape[2] - 1]
    mask = torch.from_numpy(near.dense())
    scores = scores.masked_fill(~mask, -torch.inf)[:, :, 1:]  # row 0 is empty
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@given(
    seed=st.integers(0, 1000),
    queries=st.integers(2, 70),
    keys=st.integers(1, 70),
    batch=st.integers(1, 2),
    heads=st.sampled_from([(1, 1), (2, 2), (4, 2)]),
    dim=st.integers(1, 9),
    map=st.sampled_from(MAPS),
    with_vector=st.booleans(),
    bias=st.sampled_from([None, "toeplitz", "per edge"]),
    shared=st.booleans(),
    runs=st.booleans(),
)
@settings(max_examples=60)
def test_operators_match_the_definition(
    seed, queries, keys, batch, heads, dim, map, with_vector, bias, shared, runs
):
    """Against the dense formula in float64, gradients included; long runs and single indices."""
    generator = torch.Generator().manual_seed(seed)
    bound = bind(queries, keys, 0.95 if runs else 0.3)
    if bound.distinct[0].degrees[1:].min() == 0:
        return  # one empty row is enough for a dense softmax
    rand = lambda *s: torch.randn(s, dtype=torch.float64, generator=generator, requires_grad=True)  # noqa: E731
    q, k, v = (
        rand(batch, heads[0], queries, dim),
        rand(batch, heads[1], keys, dim),
        rand(batch, heads[1], keys, 3),
    )
    count = 1 if shared else heads[0]
    places = bound.distinct[0].num_edges if bias == "per edge" else queries + keys - 1
    leaves = {
        "vector": rand(count, dim) if with_vector else None,
        "bias": rand(count, places) if bias else None,
    }
    given_leaves = [q, k, v, *(x for x in leaves.values() if x is not None)]
    out, lse = oracle(q, k, v, bound, 0.6, map, **leaves, per_edge=bias == "per edge")
    expected = torch.autograd.grad(out.sin().sum() + lse.sum(), given_leaves)
    backends = [edges] if with_vector or bias == "per edge" else [edges, tiles]
    for backend in backends:
        options = {"bias": leaves["bias"], "map": map}
        if backend is edges:
            options |= {"vector": leaves["vector"], "per_edge": bias == "per edge"}
        got, got_lse = backend.attend(q, k, v, bound.packed, scale=0.6, **options)
        assert (got[:, :, 0] == 0).all()
        torch.testing.assert_close(got[:, :, 1:], out, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(got_lse[:, :, 1:], lse, atol=1e-9, rtol=1e-9)
        grads = torch.autograd.grad(got.sin().sum() + got_lse[:, :, 1:].sum(), given_leaves)
        for a, b in zip(grads, expected, strict=True):
            torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("name", ["edges", "tiles"])
@pytest.mark.parametrize("kind", ["map", "vector", "per edge"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opcheck(name, kind):
    if name == "tiles" and kind != "map":
        pytest.skip("tiles have neither vectors nor biases of edges")
    bound = bind(20, 30)
    q, k, v = (torch.randn(2, 4, n, 8, requires_grad=True) for n in (20, 30, 30))
    vector = torch.randn(4, 8, requires_grad=True) if kind == "vector" else None
    bias = torch.randn(1, bound.num_edges, requires_grad=True) if kind == "per edge" else None
    arguments = (q, k, v, bias, vector, bound.packed.index, torch.tensor(5), 0.3, 0.1)
    arguments = (*arguments, kind == "per edge", KINDS.index("cap"), 2.0, 0.0)
    torch.library.opcheck(getattr(native, name), arguments)


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_do_not_depend_on_the_number_of_threads(threads):
    bound = bind(300, 300, 0.5)
    generator = torch.Generator().manual_seed(0)
    rand = lambda *s: torch.randn(s, generator=generator, requires_grad=True)  # noqa: E731
    q, k, v, vector = rand(2, 4, 300, 16), rand(2, 4, 300, 16), rand(2, 4, 300, 16), rand(4, 16)
    bias = rand(1, bound.num_edges)
    before = torch.get_num_threads()
    results = []
    for count in (1, threads):
        torch.set_num_threads(count)
        out, _ = edges.attend(
            q, k, v, bound.packed, scale=1.0, bias=bias, per_edge=True, vector=vector,
            map=Map("leaky", 0.2),
        )  # fmt: skip
        results.append(torch.autograd.grad(out.sum(), (q, k, vector, bias)))
    torch.set_num_threads(before)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_refusals():
    bound = bind(20, 30)
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 5)
    index = bound.packed
    count = bound.num_edges
    for options, error, message in (
        ({"bias": torch.zeros(1, count + 1), "per_edge": True}, ValueError, "bias: unexpected shape"),
        ({"bias": torch.zeros(3, count), "per_edge": True}, ShapeError, "bias must have shape"),
        ({"per_edge": True}, ValueError, "bias of edges is missing"),
        ({"vector": torch.zeros(4, 7)}, ValueError, "vector: unexpected shape"),
        ({"vector": torch.zeros(3, 8)}, ValueError, "vector: must have shape"),
    ):
        with pytest.raises(error, match=message):
            edges.attend(q, k, v, index, scale=1.0, **options)
    two = Bound((*bound.distinct, bind(20, 30, 0.9).distinct[0]), np.array([[0, 1, 0, 1]]), 20, 30)
    with pytest.raises(ValueError, match="one relation for all heads"):
        edges.attend(q, k, v, two.packed, scale=1.0, bias=torch.zeros(1, count), per_edge=True)
    with pytest.raises(ValueError, match="no such map"):
        native.by_edges(PairInputs(q, k, v), index, None, PairOptions(1.0, map=9))
    with pytest.raises(BackendError, match="neither a vector nor a bias of edges"):
        native.tiles(q, k, v, None, torch.zeros(1, 8), bound.packed.index, None, 1.0, 0.0, False, 0, 0.0, 0.0)


def test_vmap_over_a_vector_or_a_bias_is_item_by_item():
    bound = bind(20, 30)
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 5)
    index, vectors, biases = bound.packed, torch.randn(3, 4, 8), torch.randn(3, 4, 49)

    def run(vector, bias):
        return edges.attend(q, k, v, index, scale=1.0, vector=vector, bias=bias)

    out, lse = torch.vmap(run)(vectors, biases)
    for n in range(3):
        torch.testing.assert_close((out[n], lse[n]), run(vectors[n], biases[n]))


# ---------------------------------------------------------------------- weighted relations

GRAPH = Graph([(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3), (4, 4), (5, 2)], nodes=6)


def weighted(kind: str, heads: int):
    generator = torch.Generator().manual_seed(0)
    if kind == "slopes":
        slopes = torch.rand(heads, dtype=torch.float64, generator=generator).requires_grad_()
        return ALiBi(slopes, relation=er.Causal() - er.Identity()), slopes
    if kind == "pairs":
        table = torch.randn(heads, 6, 6, dtype=torch.float64, generator=generator).requires_grad_()
        return Weighted(er.Causal() - er.Identity(), table), table
    values = torch.randn(heads, 8, dtype=torch.float64, generator=generator).requires_grad_()
    return Weighted(GRAPH, edges=values), values


@pytest.mark.parametrize("kind", ["slopes", "pairs", "graph"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize(
    "kernel", [None, SoftmaxDot(softcap=2.0), Additive(torch.ones(3)), Polynomial(2, 1.0)]
)
def test_weighted_relations_agree_on_all_backends(kind, heads, kernel):
    relation, values = weighted(kind, heads)
    generator = torch.Generator().manual_seed(1)
    leaves = [
        torch.randn(2, h, 6, 3, dtype=torch.float64, generator=generator).requires_grad_() for h in (4, 2, 2)
    ]
    leaves.append(values)

    def run(backend):
        out = er.attend(*leaves[:3], relation, kernel=kernel, backend=backend)
        return out, *torch.autograd.grad(out.sin().sum(), leaves)

    expected, able = run("reference"), []
    for backend in (None, "gather", "edges", "tiles", "sdpa"):
        try:
            result = run(backend)
        except BackendError:
            continue
        able.append(backend)
        for a, b in zip(result, expected, strict=True):
            torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)
    assert able[:3] == [None, "gather", "edges"]
    plain_vector = not (isinstance(kernel, Additive))
    assert ("tiles" in able) == (kind == "slopes" and plain_vector)
    assert ("sdpa" in able) == (kernel is None)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_weighted_relations_in_flex_and_compiled():
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
    relation = ALiBi([0.5, 0.25])
    expected = er.attend(q, k, v, relation, backend="reference")
    torch.testing.assert_close(er.attend(q, k, v, relation, backend="flex"), expected)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *x: er.attend(*x, relation), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v), expected)
    learned = ALiBi(torch.tensor([0.5, 0.25], requires_grad=True))
    out = torch.compile(lambda *x: er.attend(*x, learned), backend="aot_eager")(q, k, v)
    torch.testing.assert_close(out, expected)
    assert torch.autograd.grad(out.sum(), learned.slopes)[0].isfinite().all()


def test_a_bias_of_edges_needs_one_relation():
    q = torch.randn(2, 2, 6, 3)
    relation = Weighted(er.PerHead([er.Causal(), er.Full()]), torch.zeros(6, 6).numpy())
    with pytest.raises(ParameterError, match="the same in all heads"):
        er.attend(q, q, q, relation)
    with pytest.raises(ShapeError, match="2 heads"):
        er.attend(q, q, q, ALiBi([1, 2, 3]))
