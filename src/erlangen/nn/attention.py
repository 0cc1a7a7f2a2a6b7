"""The general attention layer (Definition 10): any relation, any number of heads."""

from __future__ import annotations

from copy import copy
from functools import singledispatch
from typing import Any, Never

import torch
from torch import Tensor, nn

from erlangen.attention import attend
from erlangen.attention.compiling import uncompiled
from erlangen.attention.foreign import refuse
from erlangen.attention.kernels import Kernel
from erlangen.errors import ParameterError, ShapeError
from erlangen.nn.kv_cache import KVCache, step
from erlangen.relations import (
    Batch,
    Bindable,
    FromMask,
    Full,
    Neighborhoods,
    WeightedRelation,
    sizes,
)
from erlangen.relations.protocol import AnyRelation, expect
from erlangen.relations.weighted import WeightedRows


class Attention(nn.Module):
    """Multi-head attention over a relation: h_i is the mean of the values of N_i under the attention weights.

    Per head, h_i = sum over j in N_i of alpha_ij V x_j with alpha_i = softmax over N_i of
    <Q x_i, K x_j> / sqrt(head dim); the heads are concatenated and projected by `O`. Parameters are the
    linear maps `Q`, `K`, `V`, `O`.

    - `relation`: any relation or `PerHead` family; a call may pass another (`relation=`), for example a
      `Batch` of padding lengths or the graph of this instance. A weighted relation (`ALiBi`, `RelativeBias`)
      adds its log-weights to the scores.
    - `num_kv_heads`: fewer key/value heads than heads (grouped queries).
    - `context=` at a call: keys and values come from there (cross-attention); `context_dim` is its width.
    - `key_padding_mask=` at a call: booleans (batch, keys), True = padding, the meaning it has in torch.nn;
      nobody reads these keys. (A tokenizer's `attention_mask` is the opposite: pass `attention_mask == 0`.)
    - `cache=` at a call: decoding; the new positions read the past from a `KVCache` and are added to it.
    - `kernel`: another function of query and key than the exponential of their product (`erlangen.kernels`);
      parameters it holds (a sink, a vector) become parameters `kernel_...` of the layer, as those of a
      weighted relation become `relation_...`.
    - a query that reads nothing gives the zero vector (before `O`'s bias).

    >>> import torch
    >>> from erlangen.relations import Causal
    >>> layer = Attention(8, num_heads=2, relation=Causal())
    >>> layer(torch.randn(5, 8)).shape, layer(torch.randn(3, 5, 8)).shape
    (torch.Size([5, 8]), torch.Size([3, 5, 8]))
    >>> h, weights = layer(torch.randn(3, 5, 8), need_weights=True)
    >>> weights.shape, bool((weights.sum(-1) - 1).abs().max() < 1e-5)
    (torch.Size([3, 2, 5, 5]), True)
    >>> _, weights = layer(torch.randn(1, 3, 8), key_padding_mask=torch.tensor([[True, False, False]]),
    ...                    need_weights=True)
    >>> (weights[0, 0] > 0).int().tolist()
    [[0, 0, 0], [0, 1, 0], [0, 1, 1]]
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int = 1,
        relation: Bindable | WeightedRelation | None = None,
        *,
        num_kv_heads: int | None = None,
        context_dim: int | None = None,
        bias: bool = False,
        dropout: float = 0.0,
        kernel: Kernel | None = None,
        backend: str | None = None,
    ) -> None:
        super().__init__()
        d_model = sizes.count(d_model, "Attention(d_model)", least=1)
        num_heads = sizes.count(num_heads, "Attention(num_heads)", least=1)
        num_kv_heads = (
            num_heads if num_kv_heads is None else sizes.count(num_kv_heads, "num_kv_heads", least=1)
        )
        if d_model % num_heads or num_heads % num_kv_heads:
            raise ParameterError(
                f"d_model={d_model} must be a multiple of num_heads={num_heads}, and that of "
                f"num_kv_heads={num_kv_heads}"
            )
        relation = Full() if relation is None else relation
        taken = "relation must be a Relation, PerHead, Batch or weighted relation"
        expect(relation, taken, axes=("item", "head"), weights=True)
        weights = relation.weights
        if weights is not None and weights.heads not in (1, num_heads):
            raise ParameterError(
                f"{relation!r} has weights for {weights.heads} heads, but num_heads={num_heads}"
            )
        self.d_model, self.num_heads, self.num_kv_heads = d_model, num_heads, num_kv_heads
        self.head_dim = d_model // num_heads
        self.relation = relation
        self.dropout = dropout
        if kernel is not None and not isinstance(kernel, Kernel):
            raise ParameterError(f"kernel must be one of erlangen.kernels, got {kernel!r}")
        self.kernel = kernel
        held = {} if kernel is None or isinstance(kernel, nn.Module) else vars(kernel)
        self._of_kernel = self._register("kernel", held)
        held = {} if weights is None else weights._arguments()
        self._of_relation = self._register("relation", held)
        self.backend = backend
        kv_width = num_kv_heads * self.head_dim
        context_dim = d_model if context_dim is None else context_dim
        self.Q = nn.Linear(d_model, d_model, bias=bias)
        self.K = nn.Linear(context_dim, kv_width, bias=bias)
        self.V = nn.Linear(context_dim, kv_width, bias=bias)
        self.O = nn.Linear(d_model, d_model, bias=bias)

    def _register(self, what: str, held: dict[str, Any]) -> tuple[str, ...]:
        """Makes parameters that a kernel or a relation holds parameters of the layer; gives their names."""
        names = tuple(name for name, value in held.items() if isinstance(value, nn.Parameter))
        for name in names:
            self.register_parameter(f"{what}_{name}", held[name])
        return names

    def extra_repr(self) -> str:
        return f"{self.d_model}, num_heads={self.num_heads}, relation={self.relation!r}"

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        relation: Bindable | Neighborhoods | WeightedRelation | None = None,
        key_padding_mask: Tensor | None = None,
        cache: KVCache | None = None,
        need_weights: bool = False,
        **foreign: Never,
    ) -> Any:
        """`x` (n, d_model) or (batch, n, d_model) -> the same shape; weights are (batch, heads, n, keys)."""
        if foreign:
            refuse("Attention", foreign)
        source = x if context is None else context
        if x.dim() not in (2, 3) or source.dim() != x.dim() or x.shape[-1] != self.d_model:
            raise ShapeError(
                f"x must be (n, {self.d_model}) or (batch, n, {self.d_model}) with a context of as many "
                f"dimensions; got x {tuple(x.shape)}, context {tuple(source.shape)}"
            )
        if cache is not None and context is not None:
            raise ParameterError("a cache holds the layer's own past: give either cache or context")
        wanted: Any = self._current_relation() if relation is None else relation
        q = self._heads(self.Q(x), self.num_heads)
        k = self._heads(self.K(source), self.num_kv_heads)
        v = self._heads(self.V(source), self.num_kv_heads)
        options: dict[str, Any] = {
            "kernel": self._current_kernel(),
            "dropout": self.dropout if self.training else 0.0,
            "backend": self.backend,
            "return_weights": need_weights,
        }
        if cache is None and key_padding_mask is None:
            out = attend(q, k, v, wanted, **options)
        else:
            out = _attend_now(self, q, k, v, wanted, key_padding_mask, cache, options)
        h, weights = out if need_weights else (out, None)
        h = self.O(h.transpose(-3, -2).flatten(-2))
        return (h, weights) if need_weights else h

    def _current_kernel(self) -> Kernel | None:
        """The kernel with the parameters that the layer has now: `functional_call`, `load_state_dict(assign=
        True)` and parametrizations put others in their place."""
        mine = {name: getattr(self, f"kernel_{name}") for name in self._of_kernel}
        if all(getattr(self.kernel, name) is value for name, value in mine.items()):
            return self.kernel
        kernel = copy(self.kernel)
        for name, value in mine.items():
            object.__setattr__(kernel, name, value)  # kernels are frozen
        return kernel

    def _current_relation(self) -> Bindable | WeightedRelation:
        """The relation with the parameters that the layer has now, as for the kernel."""
        mine = {name: getattr(self, f"relation_{name}") for name in self._of_relation}
        if not mine or all(getattr(self.relation, name) is value for name, value in mine.items()):
            return self.relation
        weights = self.relation.weights
        arguments: Any = {**weights._arguments(), **mine, "relation": weights.support}
        return type(self.relation)(**arguments)

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.head_dim)).transpose(-3, -2)


@uncompiled
def _attend_now(
    layer: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wanted: Any,
    padding: Any,
    cache: KVCache | None,
    options: dict[str, Any],
) -> Any:
    """Attention over a relation that is known only now: what is read depends on numbers and on the cache."""
    start = 0 if cache is None else cache.position
    stop = start + k.shape[-2]
    if cache is not None:
        cache.claim(layer)
        wanted = step(wanted, start, stop, cache.length)
    wanted = _without(wanted, padding, (*k.shape[:-3], stop))
    if cache is not None:
        k, v = cache.append(k, v, q.requires_grad)
        if not options["return_weights"]:
            wanted, k, v = _trim(wanted, k, v)
    return attend(q, k, v, wanted, **options)


def _without(wanted: Any, padding: Any, shape: tuple[int, ...]) -> Any:
    """The relation without the keys that are padding (True), of which there are ([batch,] keys)."""
    if padding is None:
        return wanted
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool or padding.shape != shape:
        got = f"{padding.dtype} {tuple(padding.shape)}" if isinstance(padding, Tensor) else repr(padding)
        raise ParameterError(
            f"key_padding_mask takes booleans {tuple(shape)}, True = padding (as in torch.nn), got {got}; "
            "of an attention_mask, 1 = real, pass attention_mask == 0"
        )
    if not padding.any():
        return wanted
    if not isinstance(wanted, AnyRelation):
        raise ParameterError(
            f"key_padding_mask does not combine with {type(wanted).__name__}; give a relation that has the "
            "padding taken out: relation & Batch.from_mask(~key_padding_mask)"
        )
    known: Any = wanted
    known = FromMask._of(known) if known.is_bound else known
    return known & Batch.from_mask(~padding.reshape(-1, shape[-1]))


@singledispatch
def _trim(rows: Any, k: Tensor, v: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Cut off the keys before the first and after the last that any row reads: views, no copies.

    Nothing is cut where rows are not bound, or differ between heads.
    """
    return rows, k, v


@_trim.register
def _(rows: WeightedRows, k: Tensor, v: Tensor) -> tuple[Any, Tensor, Tensor]:
    if rows.axes:
        return rows, k, v
    starts = rows.at().starts
    support, k, v = _trim(rows.support, k, v)
    return WeightedRows(rows.whole, support, rows.query, int(starts.min()) if starts.size else 0), k, v


@_trim.register
def _(rows: Neighborhoods, k: Tensor, v: Tensor) -> tuple[Any, Tensor, Tensor]:
    if rows.starts.size == 0:
        return rows, k, v
    low, high = int(rows.starts.min()), int(rows.stops.max())
    k, v = k[..., low:high, :], v[..., low:high, :]
    if rows.num_edges == rows.queries * (high - low):
        return Full(), k, v  # what remains is read by all: the same relation at every step, bound only once
    return Neighborhoods(rows.queries, high - low, rows.indptr, rows.starts - low, rows.stops - low), k, v
