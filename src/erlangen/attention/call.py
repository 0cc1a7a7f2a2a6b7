"""One attention call as a value: checked and made once, for `plan` and for the run."""

from __future__ import annotations

from math import sqrt
from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from erlangen.attention.biases import support
from erlangen.attention.binding import Bound
from erlangen.attention.compiling import constant
from erlangen.attention.kernels import Kernel, Linear
from erlangen.attention.kernels.form import number
from erlangen.attention.prepared import PackedRelation
from erlangen.attention.shapes import check
from erlangen.errors import ParameterError
from erlangen.relations import Batch, Bindable, Full


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
    relation = Full() if relation is None else relation
    compiling = torch.compiler.is_compiling()
    relation = constant(relation) if compiling else relation
    reads, weighted = support(relation)
    check(q, k, v, reads, PackedRelation)
    if not 0.0 <= dropout < 1.0:
        raise ParameterError(f"dropout must be in [0, 1), got {dropout}")
    heads, queries, dim = index(q.shape[-3]), q.shape[-2], q.shape[-1]
    keys = k.shape[-2]
    if not isinstance(reads, PackedRelation):
        # A relation is bound to numbers: `index` makes the compiler settle on them where it would keep
        # symbols. The size of the batch stays a symbol unless items differ in what they read.
        queries, keys = index(queries), index(keys)
        if (compiling or torch._C._is_tracing()) and data_dependent(reads):
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


def run_time_only(relation: Any) -> bool:
    """Whether what is read is known only when the call runs, while a compiler is tracing it.

    Of a packed relation nothing is asked: the compiler would guard it by identity."""
    if relation is None or isinstance(relation, PackedRelation):
        return False
    reads, _ = support(constant(relation))
    return not isinstance(reads, PackedRelation) and data_dependent(reads)


def items_differ(reads: Any) -> bool:
    """Whether what is read may differ between the items of a batch."""
    if isinstance(reads, Batch | PackedRelation):
        return isinstance(reads, Batch)
    return data_dependent(reads)


@torch.compiler.assume_constant_result
def data_dependent(relation: Any) -> bool:
    """Whether a relation is bound to the vectors of the call."""
    return isinstance(relation, Bindable) and relation.data_dependent


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
