"""What is fuzzed: functions of bytes that answer, or refuse with an error of `erlangen.errors`."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import erlangen as er
from erlangen.errors import ErlangenError
from erlangen.models import GPT
from erlangen.relations import relation_files as files
from erlangen.relations.parse import parse
from erlangen.taxonomy import Certificate, verify
from erlangen.training import checkpoint, plain_pickle
from erlangen.training.trainer import Run, train

BOUND = {n: er.Ring(1, 1).on(n) for n in (0, 1, 2, 5, 8)}


def parser(data: bytes) -> None:
    """An expression: what is parsed prints as text that is parsed to the same."""
    relation = parse(data.decode("utf-8", "replace"))
    text = repr(relation)
    if "<" not in text and "nan" not in text and "inf" not in text and len(text) < 90_000:
        # A text that is longer or deeper than what was read may be refused, but never read as another.
        with contextlib.suppress(ErlangenError):
            assert parse(text) == relation, text


def relation_files(data: bytes) -> None:
    """A file of a relation; the first byte chooses its ending."""
    suffix = files.SUFFIXES[data[0] % len(files.SUFFIXES)] if data else ".npy"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"relation{suffix}")
        path.write_bytes(data[1:])
        relation = files.read_relation(path)
    if isinstance(relation, er.FromMask):
        queries, keys = relation._bound.queries, relation._bound.keys
        bound = relation.on(min(queries, keys), keys)
        assert bound.num_edges <= queries * keys


def certificates(data: bytes) -> None:
    """A certificate: never True for a false claim about a ring."""
    certificate = Certificate.from_json(data)
    for n, bound in BOUND.items():
        if verify(certificate, bound) and n == 8 and certificate.value:
            false = ("transitive", "antisymmetric", "acyclic", "unique_topological_order", "full",
                     "empty", "identity", "total-order", "previous", "bipartite", "total")  # fmt: skip
            assert certificate.claim not in false, certificate


def _run() -> Run:
    model = nn.Linear(2, 2)
    return Run(
        model,
        torch.optim.AdamW(model.parameters(), lr=0.1),
        schedule=lambda step: 0.1,
        batch=lambda step: torch.full((1, 2), float(step)),
        loss=lambda model, x: model(x).square().mean(),
        steps=3,
        evaluate=lambda model: {"loss": 1.0},
        every=1,
    )


def checkpoints(data: bytes) -> None:
    """A checkpoint, read and resumed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.safetensors")
        path.write_bytes(data)
        checkpoint.load(path)
        train(_run(), path, resume=True)


def models(data: bytes) -> None:
    """A saved model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.safetensors")
        path.write_bytes(data)
        GPT.load(path)


def planetoid(data: bytes) -> None:
    """A pickle of numbers."""
    value = plain_pickle.read(data)
    if isinstance(value, plain_pickle.Sparse):
        value.dense()


_RELATIONS = [er.Full(), er.Causal(), er.Window(3, 1), er.Dilated(2), er.Random(2, 0), er.Empty(),
              er.Blocks(3),
              er.Global([0]) & er.Causal(), ~er.Window(1, 1), er.ALiBi(0.5), er.Ring(2, 0)]  # fmt: skip
_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.complex64]
_BACKENDS = ["tiles", "edges", "native", None]


def native(data: bytes) -> None:
    """Attention by the native kernels on tensors of odd shapes, strides and types, against the reference."""
    numbers = iter(data + bytes(32))
    take = lambda bound: next(numbers) % bound  # noqa: E731
    relation = _RELATIONS[take(len(_RELATIONS))]
    dtype, backend = _DTYPES[take(len(_DTYPES))], _BACKENDS[take(len(_BACKENDS))]
    batch, heads, queries, keys = take(4), 1 + take(3), take(71), take(71)
    dim, width = take(21), take(21)
    rng = np.random.default_rng(take(256))

    def tensor(length: int, size: int) -> torch.Tensor:
        way, scale = take(6), [1.0, 1.0, 1.0, 30.0, 0.0][take(5)]
        shape = [batch + take(8) // 7, heads + take(8) // 7, length + take(16) // 15, size + take(16) // 15]
        if way == 1:  # heads inside positions
            inside = [shape[0], shape[2], shape[1], shape[3]]
            made = torch.from_numpy(rng.standard_normal(inside)).transpose(1, 2)
        elif way == 2:  # the last dimension not contiguous
            made = torch.from_numpy(rng.standard_normal([*shape[:2], shape[3], shape[2]])).transpose(2, 3)
        elif way == 3:
            made = torch.from_numpy(rng.standard_normal([*shape[:3], 2 * shape[3]]))[..., ::2]
        elif way == 4:
            made = torch.from_numpy(rng.standard_normal(shape[2:])).expand(shape)
        else:
            made = torch.from_numpy(rng.standard_normal(shape))
        return (made * scale).to(dtype) if way != 4 else made.to(dtype)

    q, k, v = tensor(queries, dim), tensor(keys, dim), tensor(keys, width)
    try:
        found = er.attend(q, k, v, relation, backend=backend) if backend else er.attend(q, k, v, relation)
    finally:
        for x in (q, k, v):
            assert x.shape.numel() == x.numel()
    wanted = er.attend(q.double(), k.double(), v.double(), relation, backend="reference")
    close = {torch.float64: 1e-9, torch.float32: 1e-3}.get(dtype, 0.2)
    torch.testing.assert_close(found.double(), wanted, rtol=close, atol=close)


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (parser, relation_files, certificates, checkpoints, models, planetoid, native)
}
"""By name, which is also the folder of its corpus."""

CORPUS = Path(__file__).parent / "corpus"


def try_one(name: str, data: bytes) -> bool:
    """Whether the target answered; False when it refused in words. Anything else is a fault, and raised."""
    try:
        TARGETS[name](data)
    except ErlangenError:
        return False
    return True


def seeds(name: str) -> list[bytes]:
    """What the corpus keeps of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir()) if path.is_file()]
