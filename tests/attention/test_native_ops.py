"""The native kernels as torch operators: autograd, fake tensors, compile, autocast, vmap, refusals."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from types import ModuleType

import numpy as np
import pytest
import torch

from erlangen.attention import native, packing
from erlangen.attention.backends import edges, tiles
from erlangen.attention.binding import Bound
from erlangen.attention.formula import PairOptions
from erlangen.errors import BackendError, ShapeError
from erlangen.relations import Neighborhoods


def test_the_extension_is_built() -> None:
    assert native.available(), native.missing()


PLAIN = (False, 0, 0.0, 0.0)
"""Scores are scaled products: no bias of edges, no map."""

BACKENDS = [pytest.param(tiles, id="tiles"), pytest.param(edges, id="edges")]


def bind(queries: int, keys: int, density: float = 0.4) -> Bound:
    mask = np.random.default_rng(0).random((queries, keys)) < density
    mask[0] = False  # a row that reads nothing
    return Bound((Neighborhoods.from_dense(mask),), np.zeros((1, 1), np.int64), queries, keys)


def operator(backend: ModuleType):
    return native.tiles if backend is tiles else native.edges


def entry(backend: ModuleType, bound: Bound):
    """The forward entry point of the extension itself."""
    name, index = ("tiles", bound.packed.tiles) if backend is tiles else ("edges", bound.packed.runs)

    def run(q, k, v, bias, out, lse, stats=None, dropout=0.0, map=0, threads=1, inputs=None):
        options = PairOptions(0.3, dropout, map=map)
        inputs = (q, k, v, bias, None) if inputs is None else inputs
        getattr(packing.native, f"{name}_forward")(index, inputs, options, 0, threads, (out, lse, stats))

    return run


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_gradcheck(backend: ModuleType, with_bias: bool) -> None:
    torch.manual_seed(0)
    bound = bind(7, 9)
    sizes = ((1, 2, 7, 3), (1, 1, 9, 3), (1, 1, 9, 2), (2, 15))
    inputs = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes[: 3 + with_bias]]

    def f(q, k, v, bias=None):
        out, lse = backend.attend(
            q, k, v, bound.packed, scale=0.5, dropout=0.2, seed=torch.tensor(3), bias=bias
        )
        return out, lse[:, :, 1:]  # row 0 is empty: its log-sum-exp is -inf

    assert torch.autograd.gradcheck(f, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_opcheck(backend: ModuleType) -> None:
    bound = bind(20, 30)
    for inside in (False, True):
        q, k, v = (
            (torch.randn(2, n, 4, 8).transpose(1, 2) if inside else torch.randn(2, 4, n, 8)).requires_grad_()
            for n in (20, 30, 30)
        )
        for bias in (None, torch.randn(4, 49, requires_grad=True)):
            arguments = (q, k, v, bias, None, bound.packed.index, torch.tensor(5), 0.3, 0.1, *PLAIN)
            torch.library.opcheck(operator(backend), arguments)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiles_into_one_graph_forward_and_backward(backend: ModuleType) -> None:
    torch._dynamo.reset()
    bound = bind(20, 20)
    inputs = [torch.randn(1, 2, 20, 8, requires_grad=True) for _ in range(3)]
    index = bound.packed.index

    def f(q, k, v):
        out, lse = backend.attend(q * 2, k, v, index, scale=0.3)
        return out.sin().sum() + lse[:, :, 1:].sum()

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    wanted = torch.autograd.grad(f(*inputs), inputs)
    for a, b in zip(torch.autograd.grad(compiled(*inputs), inputs), wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_lowers_the_inputs_but_leaves_float64(backend: ModuleType) -> None:
    bound = bind(20, 20)
    x = torch.randn(1, 2, 20, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, lse = backend.attend(x, x, x, bound.packed, scale=0.3)
        assert backend.attend(*[x.double()] * 3, bound.packed, scale=0.3)[0].dtype == torch.float64
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    (grad,) = torch.autograd.grad(out.float().sum(), x)
    assert grad.dtype == torch.float32


@pytest.mark.parametrize("backend", BACKENDS)
def test_vmap_is_a_larger_batch(backend: ModuleType) -> None:
    bound = bind(20, 20)
    q, k, v = torch.randn(3, 2, 4, 20, 8), torch.randn(2, 4, 20, 8), torch.randn(2, 3, 4, 20, 8)
    out, lse = torch.vmap(lambda q, v: backend.attend(q, k, v, bound.packed, scale=0.3), in_dims=(0, 1))(q, v)
    for n in range(3):
        wanted = backend.attend(q[n], k, v[:, n], bound.packed, scale=0.3)
        torch.testing.assert_close((out[n], lse[n]), wanted)


@pytest.mark.parametrize("backend", BACKENDS)
def test_meta_tensors_have_the_shapes_and_strides_of_real_ones(backend: ModuleType) -> None:
    bound = bind(20, 30)
    q, k, v = torch.randn(2, 20, 4, 8).transpose(1, 2), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 5)
    index = bound.packed.index
    real = operator(backend)(q, k, v, None, None, index, None, 1.0, 0.0, *PLAIN)
    fake = operator(backend)(
        *(x.to("meta") for x in (q, k, v)), None, None, index.to("meta"), None, 1.0, 0.0, *PLAIN
    )
    for a, b in zip(real, fake, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_index_is_packed_once_and_goes_with_its_binding(backend: ModuleType) -> None:
    bound = bind(20, 20)
    found: list[tuple[int, int]] = []

    def pack(bound: Bound) -> None:
        packed = bound.packed
        found.append((id(packed), id(packed.tiles if backend is tiles else packed.runs)))

    threads = [threading.Thread(target=pack, args=(bound,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del thread, threads
    assert len(set(found)) == 1
    index, weak = bound.packed.index, weakref.ref(bound.packed)
    assert packing.packed(index) is weak()
    x = torch.randn(1, 2, 20, 8, requires_grad=True)
    out = backend.attend(x, x, x, bound.packed, scale=1.0)[0]
    del bound
    gc.collect()
    (grad,) = torch.autograd.grad(out.sum(), x)  # the graph keeps what it needs
    assert torch.isfinite(grad).all()
    del out, grad
    gc.collect()
    assert weak() is None
    again = packing.packed(index)  # from the numbers alone, as in another process
    assert again.distinct == bind(20, 20).distinct
    assert packing.packed(index) is again


def test_an_index_is_never_taken_for_another_one() -> None:
    """Not when its memory is used again, nor when its numbers are overwritten."""
    for n in range(50):
        bound = bind(20, 20, density=0.1 + n / 100)
        index = bound.packed.index.clone()
        assert packing.packed(index).distinct == bound.distinct
    other = bind(20, 20, density=0.9).packed.index
    mine = torch.zeros(other.numel() + index.numel(), dtype=torch.int64)
    mine[: index.numel()] = index
    assert packing.packed(mine[: index.numel()]).distinct == bound.distinct
    mine[: other.numel()] = other
    assert packing.packed(mine[: other.numel()]).distinct == packing.packed(other).distinct != bound.distinct


def test_a_tensor_that_holds_no_relation_is_refused() -> None:
    index = bind(5, 5).packed.index
    rng = np.random.default_rng(0)
    for wrong in (index[:0], index[:3], index[:-1], torch.cat([index, index[:1]]), torch.zeros_like(index)):
        with pytest.raises(BackendError, match="no packed relation"):
            packing.packed(wrong.clone())
    for _ in range(300):  # any number changed: refused, or a relation of the same size
        wrong = index.clone()
        wrong[rng.integers(len(wrong))] = int(rng.choice([-1, 0, 3, 7, 2**40, -(2**62)]))
        try:
            found = packing.packed(wrong)
        except BackendError:
            continue
        assert all(0 <= near.num_edges <= near.queries * near.keys for near in found.distinct)


@pytest.mark.parametrize("backend", BACKENDS)
def test_refuses_what_does_not_fit(backend: ModuleType) -> None:
    bound = bind(20, 30)
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 5)

    def refused(message: str, *tensors: torch.Tensor, error: type[Exception] = ShapeError, **options) -> None:
        with pytest.raises(error, match=message):
            backend.attend(*tensors, bound.packed, scale=1.0, **options)

    refused("other lengths", q[:, :, :19], k, v, error=ValueError)
    refused("unexpected shape", q, k, v[:, :, :29], error=ValueError)
    refused("dtype differs", q.double(), k, v, error=ValueError)
    refused("float32, float64", q.int(), k.int(), v.int(), error=BackendError)
    refused("bias must have shape", q, k, v, bias=torch.zeros(4, 50))
    refused("bias must have shape", q, k, v, bias=torch.zeros(3, 49))
    refused("dropout", q, k, v, error=ValueError, dropout=1.5)


def test_the_extension_itself_refuses_bad_indices() -> None:
    def integers(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    which, words = np.zeros((1, 1), np.int64), np.ones(64, np.uint64)
    good_tiles = {
        "queries": 70,
        "keys": 70,
        "relations": 1,
        "indptr": integers(0, 1, 2),
        "columns": integers(0, 1),
        "pattern": integers(-1, 0),
        "patterns": words & np.uint64(1),
        "which": which,
    }
    good_tiles["patterns"] = np.where(np.arange(64) < 6, words, 0).astype(np.uint64)
    packing.native.Tiles(**good_tiles)
    for change, message in (
        ({"columns": integers(0, 2)}, "column of a tile"),
        ({"columns": integers(0, -1)}, "column of a tile"),
        ({"columns": integers(0)}, "indptr is out of range|column and a pattern"),
        ({"pattern": integers(-1, 1)}, "pattern of a tile"),
        ({"pattern": integers(-2, 0)}, "pattern of a tile"),
        ({"indptr": integers(0, 1, 3)}, "indptr is out of range"),
        ({"indptr": integers(0, 2, 1)}, "must not decrease"),
        ({"indptr": integers(0, 1)}, "one entry per row"),
        ({"indptr": integers(0, 0, 2), "columns": integers(1, 0)}, "must increase"),
        ({"patterns": words[:63]}, "64 words"),
        ({"patterns": words}, "query out of range"),
        ({"which": which + 1}, "not there"),
        ({"which": np.zeros((0, 1), np.int64)}, "shape"),
        ({"relations": 0}, "at least one relation"),
        ({"queries": -1}, "out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            packing.native.Tiles(**(good_tiles | change))

    good_runs = {
        "queries": 2,
        "keys": 5,
        "relations": 1,
        "indptr": integers(0, 1, 2),
        "starts": integers(0, 3),
        "stops": integers(5, 4),
        "which": which,
    }
    packing.native.Runs(**good_runs)
    for change, message in (
        ({"stops": integers(6, 4)}, "run is out of range"),
        ({"starts": integers(-1, 3)}, "run is out of range"),
        ({"starts": integers(0, 4)}, "run is out of range"),
        ({"stops": integers(5)}, "start and a stop"),
        ({"indptr": integers(0, 1, 3)}, "indptr is out of range"),
    ):
        with pytest.raises(ValueError, match=message):
            packing.native.Runs(**(good_runs | change))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_extension_itself_refuses_bad_tensors(backend: ModuleType) -> None:
    run = entry(backend, bind(20, 30))
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 2, 30, 5)
    good = {
        "q": q,
        "k": k,
        "v": v,
        "bias": None,
        "out": torch.empty(2, 4, 20, 5),
        "lse": torch.empty(2, 4, 20),
        "stats": None,
        "dropout": 0.0,
        "map": 0,
        "threads": 1,
    }
    run(**good)
    for change, message in (
        ({"q": q[:, :, :19]}, "other lengths"),
        ({"q": q[0]}, "must have shape"),
        ({"q": q.double()}, "dtype differs"),
        ({"q": q.int()}, "float32"),
        ({"k": k.mT.contiguous().mT}, "contiguous"),
        ({"v": v[:, :, :29]}, "unexpected shape"),
        ({"out": torch.empty(2, 4, 20, 6)}, "out: unexpected shape"),
        ({"out": torch.empty(2, 4, 20, 5, dtype=torch.float64)}, "out: dtype"),
        ({"lse": torch.empty(2, 4, 20, dtype=torch.float64)}, "lse: must be float32"),
        ({"lse": torch.empty(2, 4, 40)[:, :, ::2]}, "lse: must be contiguous"),
        ({"stats": torch.empty(2, 4, 20)}, "stats: unexpected shape"),
        ({"bias": torch.zeros(4, 48)}, "bias: unexpected shape"),
        ({"bias": torch.zeros(3, 49)}, "bias: must have shape"),
        ({"dropout": 2.0}, "dropout"),
        ({"map": 9}, "no such map"),
        ({"threads": 0}, "thread"),
    ):
        with pytest.raises(ValueError, match=message):
            run(**(good | change))
    for wrong in (q.to("meta"), q.to_sparse(), "q", None):
        with pytest.raises(TypeError):
            run(**(good | {"q": wrong}))
    with pytest.raises(TypeError):
        run(**good, inputs=(q, k, v))  # of five


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensors_of_makers_without_an_exchange_api(backend: ModuleType) -> None:
    run = entry(backend, bind(20, 30))
    q, k, v = torch.randn(2, 4, 20, 8), torch.randn(2, 2, 30, 8), torch.randn(2, 30, 2, 8).transpose(1, 2)
    out, lse = torch.empty(2, 4, 20, 8), torch.empty(2, 4, 20)
    out_np, lse_np = out.numpy().copy(), lse.numpy().copy()
    run(q, k, v, None, out, lse)
    arrays = [x.numpy() for x in (q, k, v)]
    run(*arrays, None, out_np, lse_np)
    np.testing.assert_array_equal(out_np, out.numpy())
    np.testing.assert_array_equal(lse_np, lse.numpy())
    out_np.flags.writeable = False
    with pytest.raises(TypeError):
        run(*arrays, None, out_np, lse_np)


def test_survives_a_fork_and_several_callers_at_once() -> None:
    code = """
import os, threading, warnings, numpy as np, torch
warnings.simplefilter("ignore")
from erlangen.attention.backends import tiles
from erlangen.attention.binding import Bound
from erlangen.relations import Causal
torch.set_num_threads(2)
bound = Bound((Causal().on(300),), np.zeros((1, 1), np.int64), 300, 300)
x = torch.randn(1, 4, 300, 16)
index = bound.packed
wanted = tiles.attend(x, x, x, index, scale=1.0)[0]
same = []
def again():
    same.extend(torch.equal(tiles.attend(x, x, x, index, scale=1.0)[0], wanted) for _ in range(20))
threads = [threading.Thread(target=again) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(same) == 80 and all(same)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(tiles.attend(x, x, x, index, scale=1.0)[0], wanted) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
