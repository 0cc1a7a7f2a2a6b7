"""One attention call as a value: checked and made once, for `plan` and for the run."""

from __future__ import annotations

from math import prod, sqrt
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from erlangen.attention.binding import Bound
from erlangen.attention.compiling import constant
from erlangen.attention.foreign import WORDS
from erlangen.attention.kernels import Kernel, Linear
from erlangen.attention.kernels.form import number
from erlangen.attention.packing import PackedRelation
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import Full
from erlangen.relations.protocol import AnyRelation


class Needs(NamedTuple):
    """What the logits are: scale <q, k> and nothing else, unless said otherwise."""

    kernel: str = "SoftmaxDot"
    map: str | None = "identity"
    """The map of the product (see `Map`); None where the kernel is no function of a product of vectors."""
    vector: bool = False
    bias: str | None = None
    """"toeplitz", "per edge" or None."""
    linear: bool = False
    """Whether sums over keys can be shared: the kernel `Linear`, without bias and dropout."""
    dropout: bool = False

    @property
    def plain(self) -> bool:
        """Whether logits are scaled products, with or without a bias."""
        return self.map == "identity" and not self.vector


PLAIN = Needs()


class Call(NamedTuple):
    """One attention call, but for the numbers in its tensors and the size of its batch.

    `plan` decides about it, and it is what runs. The fields from `heads` on are plain values: a decision
    depends on them and on the bound relation, and is kept under them.
    """

    reads: Any
    """The relation without its weights, or what `pack` made."""
    weighted: Any
    """The weighted relation, or None."""
    kernel: Kernel | None
    """None stands for `SoftmaxDot(scale)`."""
    scale: float | None
    bound: Bound | None
    """The relation bound to the sizes: while deciding and preparing, never while running."""
    one_run: range | None
    """The keys that the one query of each head reads, where a step of decoding can be computed from them."""
    dropout: float
    heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int
    dtype: torch.dtype
    device: str
    backend: str | None
    """The backend that was asked for by name."""
    weights: bool
    lse: bool
    needs: Needs

    @property
    def facts(self) -> tuple[Any, ...]:
        """What a decision about a bound relation depends on."""
        return self[7:]

    @property
    def on_cpu(self) -> bool:
        """Whether the tensors lie on a CPU."""
        return self.device.partition(":")[0] == "cpu"

    @property
    def unmasked(self) -> bool:
        """Whether the relation is full or square causal, for which fused kernels need no mask."""
        assert self.bound is not None
        return self.bound.is_full or self.bound.is_causal

    @property
    def all_pairs(self) -> int:
        """Queries times keys, for the items and heads that the bound relation tells apart."""
        assert self.bound is not None
        return self.bound.index.size * self.queries * self.keys


def call_of(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    relation: Any,
    kernel: Kernel | None,
    scale: float | None,
    dropout: float,
    backend: str | None,
    weights: bool,
    lse: bool,
) -> Call:
    """The call with these arguments of `attend`, or an error that says what is wrong with them."""
    compiling = torch.compiler.is_compiling()
    relation = Full() if relation is None else constant(relation) if compiling else relation
    _check_relation(relation)
    reads, weighted = _parts(relation)
    _check_tensors(q, k, v, reads)
    if not 0.0 <= dropout < 1.0:
        raise ParameterError(f"dropout must be in [0, 1), got {dropout}")
    heads, queries, dim = index(q.shape[-3]), q.shape[-2], q.shape[-1]
    keys = k.shape[-2]
    if not isinstance(reads, PackedRelation):
        # A relation is bound to numbers: `index` makes the compiler settle on them where it would keep
        # symbols. The size of the batch stays a symbol unless items differ in what they read.
        queries, keys = index(queries), index(keys)
        if (compiling or torch._C._is_tracing()) and _data_dependent(reads):
            tracer = "torch.export" if compiling else "torch.jit.trace"
            raise ParameterError(
                f"{relation} depends on the data, and {tracer} would keep what it reads in this call for all "
                "others; use torch.compile, in which the graph breaks at this call"
            )
    if kernel is None:
        scale = 1 / sqrt(max(dim, 1)) if scale is None else number(scale, "attend(scale)")
        needs = PLAIN
        if weighted is not None or dropout:
            needs = Needs(bias=_order(weighted), dropout=bool(dropout))
    else:
        if not isinstance(kernel, Kernel):
            raise ParameterError(f"kernel must be one of erlangen.kernels, got {kernel!r}")
        if scale is not None:
            raise ParameterError(f"scale={scale} is that of the default kernel; give it to {kernel!r}")
        kernel.check(heads, dim)
        if lse and not kernel.positive:
            raise ParameterError(f"{kernel!r} is not positive: its sums have no logarithm to return")
        needs = _needs(kernel, dim, weighted, dropout)
        lse = lse or kernel.sink is not None
    return Call(
        *(reads, weighted, kernel, scale, None, None, dropout),
        *(heads, queries, keys, index(dim), index(v.shape[-1]), q.dtype, str(q.device)),
        *(backend, weights, lse, needs),
    )


def fold(x: Tensor) -> Tensor:
    """(..., heads, length, dim) as (batch, heads, length, dim)."""
    return x if x.dim() == 4 else x.reshape(prod(x.shape[:-3]), *x.shape[-3:])


def run_time_only(relation: Any) -> bool:
    """Whether what is read is known only when the call runs, while a compiler is tracing it.

    Of a packed relation nothing is asked: the compiler would guard it by identity."""
    if relation is None or isinstance(relation, PackedRelation):
        return False
    relation = constant(relation)
    _check_relation(relation)
    return _data_dependent(_parts(relation)[0])


@torch.compiler.assume_constant_result
def items_differ(reads: Any) -> bool:
    """Whether what is read may differ between the items of a batch."""
    return "item" in reads.axes or reads.data_dependent


def _parts(relation: Any) -> tuple[Any, Any]:
    """What is read, and the weighted relation that says how much, if any."""
    return (relation, None) if isinstance(relation, PackedRelation) else (relation.support, relation.weights)


@torch.compiler.assume_constant_result
def _data_dependent(relation: Any) -> bool:
    return relation.data_dependent


def _needs(kernel: Kernel, dim: int, weighted: Any, dropout: float) -> Needs:
    bias, form = _order(weighted), kernel.form(dim)
    linear = isinstance(kernel, Linear) and bias is None and not dropout
    map, vector = (None, False) if form is None else (form.map.kind, form.vector is not None)
    return Needs(type(kernel).__name__, map, vector, bias, linear, bool(dropout))


def _order(weighted: Any) -> str | None:
    """The order in which a weighted relation gives its bias; None without one."""
    if weighted is None:
        return None
    return "toeplitz" if weighted.structured else "per edge"


def _check_relation(relation: Any) -> None:
    if isinstance(relation, PackedRelation) or (isinstance(relation, AnyRelation) and relation.arity == 2):
        return
    hint, got = "", type(relation).__name__
    if isinstance(relation, Tensor):
        hint = f"; for a mask, {WORDS['mask']}"
    elif isinstance(relation, str):
        hint, got = "; write it without quotation marks, as er.Causal()", repr(relation)
    elif isinstance(relation, type):
        hint, got = f"; write {relation.__name__}(...)", f"the class {relation.__name__}"
    raise ParameterError(f"relation must be a Relation, PerHead, Batch or Neighborhoods, got {got}{hint}")


def _check_tensors(q: Tensor, k: Tensor, v: Tensor, relation: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise ShapeError(f"{name} must be a torch tensor, got {type(x).__name__}")
        if x.is_nested:
            raise ShapeError(
                f"{name} must be a dense tensor, got a nested one: put sequences of several lengths behind "
                "one another, with the relation Documents(lengths)"
            )
        if x.layout != torch.strided:
            raise ShapeError(f"{name} must be a dense tensor, got one of layout {x.layout}")
    wrong = _mismatch(q, k, v)
    if wrong:
        raise ShapeError(
            f"{wrong}: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} over {relation!r}"
        )
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ShapeError(f"q, k, v need one floating-point type, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ShapeError(f"q, k, v lie on different devices: {q.device}, {k.device}, {v.device}")


def _mismatch(q: Tensor, k: Tensor, v: Tensor) -> str | None:
    if min(q.dim(), k.dim(), v.dim()) < 3:
        return "q, k and v need shape (..., heads, length, dim)"
    if q.shape[:-3] != k.shape[:-3] or k.shape[:-1] != v.shape[:-1]:
        return "leading dimensions, kv heads or lengths do not fit"
    if q.shape[-1] != k.shape[-1]:
        return "queries and keys have different dimensions"
    if k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]:
        return "the heads of q are not a multiple of those of k"
    return None
