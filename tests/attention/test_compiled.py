"""Relations under `torch.compile` and `torch.export`: constants by value, data where packed, never another
one."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import erlangen as er
from erlangen.errors import BackendError, SizeError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def x(batch: int = 2, n: int = 32) -> torch.Tensor:
    return torch.randn(batch, 2, n, 8, generator=torch.Generator().manual_seed(batch * n))


def compilations(function: Any, calls: list[tuple[Any, ...]]) -> int:
    """How often these calls compile the function, each compared with the function itself; no graph may
    break."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    for call in calls:
        torch.testing.assert_close(compiled(*call), function(*call))
    return counter.frame_count


def test_relations_may_be_made_inside() -> None:
    assert compilations(lambda q: er.attend(q, q, q, er.Window(3)), [(x(),), (x(),)]) == 1
    assert compilations(
        lambda q: er.attend(q, q, q, er.Causal() & er.Window(3) | er.Global(keys=[0])), [(x(),), (x(),)]
    ) == 1  # fmt: skip
    assert compilations(lambda q: er.attend(q, q, q, er.PerHead([er.Causal(), er.Full()])), [(x(),)]) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: er.Window(3),
        lambda: er.Causal() & er.Dilated(2),
        lambda: er.Documents([20, 12]),
        lambda: er.Graph([(0, 1), (5, 3)], nodes=32),
        lambda: er.FromMask(torch.eye(32) > 0),
        lambda: er.PerHead([er.Causal(), er.Window(1)]),
        lambda: er.Batch([er.Causal(), er.Window(1)]),
    ],
)
def test_equal_relations_compile_once_and_others_anew(make: Any) -> None:
    def run(q, relation):
        return er.attend(q, q, q, relation)

    assert compilations(run, [(x(), make()) for _ in range(10)]) == 1
    assert compilations(run, [(x(), make()), (x(), er.Window(7)), (x(), make())]) == 2


def test_the_size_of_the_batch_does_not_count() -> None:
    layer = er.Attention(16, num_heads=2, relation=er.Window(3)).eval()
    inputs = [(torch.randn(b, 32, 16),) for b in (2, 3, 5, 7, 9)]
    for (one,) in inputs:
        torch._dynamo.maybe_mark_dynamic(one, 0)
    assert compilations(lambda given: layer(given), inputs) == 1


def test_packed_relations_are_data() -> None:
    relations = [er.Documents([k, 32 - k]) & er.Causal() for k in range(5, 17)]
    packed = [er.pack(relation, 32) for relation in relations]

    def run(q, relation):
        return er.attend(q, q, q, relation)

    assert compilations(run, [(x(), one) for one in packed]) == 1
    for one, relation in zip(packed, relations, strict=True):
        q = x().requires_grad_()
        out, wanted = run(q, one), run(q, relation)
        assert torch.equal(out, wanted)
        assert torch.equal(*(torch.autograd.grad(y.sum(), q)[0] for y in (out, wanted)))


def test_packed_relations_are_the_same_elsewhere_and_know_their_own_size() -> None:
    packed = er.pack(er.Documents([20, 12]) & er.Causal(), 32)
    again = pickle.loads(pickle.dumps(packed))
    assert torch.equal(er.attend(x(), x(), x(), again), er.attend(x(), x(), x(), packed))
    items, heads = er.Batch([er.Padding(3), er.Padding(5)]), er.PerHead([er.Causal(), er.Full()])
    for family in (items, heads):
        out = er.attend(x(), x(), x(), er.pack(family, 32))
        torch.testing.assert_close(out, er.attend(x(), x(), x(), family))


def test_packed_relations_refuse_what_they_do_not_fit() -> None:
    packed = er.pack(er.Causal(), 32)
    with pytest.raises(SizeError, match="packed for 32 queries and 32 keys, but the tensors have 30 and 30"):
        er.attend(x(n=30), x(n=30), x(n=30), packed)
    with pytest.raises(BackendError, match="does not give the weights"):
        er.attend(x(), x(), x(), packed, return_weights=True)
    with pytest.raises(BackendError, match="does not give backend 'sdpa'"):
        er.attend(x(), x(), x(), packed, backend="sdpa")
    with pytest.raises(BackendError, match="'tiles' and 'edges', not for 'sdpa'"):
        er.pack(er.Causal(), 32, backend="sdpa")
    vector = er.kernels.Additive(torch.ones(8))
    with pytest.raises(BackendError, match="does not have the kernel Additive"):
        er.attend(x(), x(), x(), er.pack(er.Causal(), 32, backend="tiles"), kernel=vector)


class Model(nn.Module):
    def __init__(self, relation: Any) -> None:
        super().__init__()
        self.relation, self.project = relation, nn.Linear(8, 8)

    def forward(self, q: torch.Tensor) -> torch.Tensor:
        return er.attend(self.project(q), q, q, self.relation)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_carries_its_relation(strict: bool, tmp_path: Path) -> None:
    relations = [
        er.Window(3),
        er.Graph([(i, i * 7 % 32) for i in range(32)], nodes=32),
        er.PerHead([er.Causal(), er.Dilated(3)]),
        er.ALiBi([0.5, 0.25]),
    ]
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    for n, relation in enumerate(relations):
        torch.manual_seed(0)
        model = Model(relation)
        program = torch.export.export(model, (x(),), dynamic_shapes=shapes, strict=strict)
        for batch in (1, 2, 5):
            torch.testing.assert_close(program.module()(x(batch)), model(x(batch)))
        torch.export.save(program, tmp_path / f"{n}.pt2")
        torch.save((x(3), model(x(3)).detach()), tmp_path / f"{n}.pt")
        torch.testing.assert_close(model(x()), Model.forward(model, x()))  # nothing fake was kept
    code = """
import sys, torch, erlangen as er
q = torch.randn(1, 2, 32, 8)
for other in (er.Full(), er.Causal(), er.Window(9), er.Dilated(2)):
    er.attend(q, q, q, other)  # numbers of this process are other ones
for n in range(4):
    program = torch.export.load(f"{sys.argv[1]}/{n}.pt2")
    given, wanted = torch.load(f"{sys.argv[1]}/{n}.pt")
    torch.testing.assert_close(program.module()(given), wanted)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], check=True, timeout=300)


def test_a_compiled_gradient_is_that_of_the_relation() -> None:
    torch._dynamo.reset()
    q = x().requires_grad_()

    def loss(q):
        return er.attend(q, q, q, er.Window(2)).square().sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(torch.autograd.grad(compiled(q), q), torch.autograd.grad(loss(q), q))
