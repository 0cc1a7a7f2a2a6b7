"""The attention function of "erlangen" in transformers' registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from erlangen.attention import attend
from erlangen.attention.kernels import SoftmaxDot
from erlangen.attention.packing import PackedRelation
from erlangen.errors import BackendError, SizeError
from erlangen.integrations.transformers.compiled import INDEX, compiled_reads, follows, runs_in_graph
from erlangen.integrations.transformers.readings import from_dense, meet
from erlangen.integrations.transformers.relation_mask import RelationMask
from erlangen.nn.kv_cache import step
from erlangen.relations import Bindable, Causal, FromMask, Full, Neighborhoods, PerHead, Weighted

REPLACED = "erlangen_relation"
"""The attribute of an attention module under which `use_relation` leaves the relation it is to have."""

UNKNOWN = ("cache", "block_indices")
"""Arguments of other attention functions that change the result, and that this one does not have."""


@dataclass(frozen=True)
class Reads:
    """What one attention call reads: a relation on the first `keys` keys, and a bias (batch or 1, heads or 1,
    queries, keys) added to the logits."""

    relation: Bindable | PackedRelation
    keys: int
    bias: Tensor | None = None


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers calls it: query (batch, heads, queries, dim) -> (batch, queries, heads, dim).

    Fewer key/value heads, `softcap`, sinks (`s_aux`) and an additive `position_bias` are computed as they
    are. The weights are returned where `output_attentions` was asked for, else None: they cost
    queries x keys, and are then computed by the dense backend.

    >>> x = torch.randn(2, 4, 5, 8)
    >>> attention_forward(nn.Identity(), x, x, x, None)[0].shape
    torch.Size([2, 5, 4, 8])
    """
    unknown = [name for name in UNKNOWN if others.get(name) is not None]
    if unknown:
        raise BackendError(
            f'attn_implementation="erlangen" does not have the argument {unknown[0]!r}, which '
            f"{type(module).__name__} passes"
        )
    asked = _collecting() if output_attentions is None else bool(output_attentions)
    reads = None
    if torch.compiler.is_compiling():
        reads = _reads_in_graph(module, query, key, attention_mask, is_causal, position_bias, asked)
        if reads is None:
            return _out_of_graph(
                *(module, query, key, value, attention_mask, dropout, scaling, is_causal),
                *(softcap, s_aux, position_bias, asked),
                **others,
            )
    reads = _reads(module, query, key, attention_mask, is_causal) if reads is None else reads
    bias = reads.bias
    if position_bias is not None and (position_bias.requires_grad or bool(position_bias.any())):
        position_bias = position_bias[..., : reads.keys]
        bias = position_bias if bias is None else position_bias + bias
    plain = softcap is None and s_aux is None
    kernel = None if plain else SoftmaxDot(scaling, softcap=softcap, sink=s_aux)
    out = _attend(
        query,
        key[:, :, : reads.keys],
        value[:, :, : reads.keys],
        reads.relation,
        bias,
        kernel=kernel,
        scale=scaling if plain else None,
        dropout=dropout,
        return_weights=asked,
    )
    out, weights = out if asked else (out, None)
    if weights is not None:
        weights = nn.functional.pad(weights, (0, key.shape[2] - reads.keys))
    return out.transpose(1, 2).contiguous(), weights


# What depends on the values of a tensor, or is done by NumPy, breaks the graph.
_out_of_graph: Any = torch.compiler.disable(attention_forward)


def _reads_in_graph(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
    position_bias: Tensor | None,
    weights: bool,
) -> Reads | None:
    """What a call reads in a graph that is being compiled; None where it is not computed in the graph."""
    if weights or position_bias is not None or not runs_in_graph(query.device):
        return None
    known = mask is None or hasattr(mask, INDEX)
    if not known and mask is not None and mask.dtype != torch.bool:
        return None  # a mask or weights: its values tell
    own: Bindable | None = getattr(module, REPLACED, None)
    if own is not None and not (known and follows(mask)):
        return None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return Reads(compiled_reads(query, key, mask, own, causal), key.shape[2])


def _collecting() -> bool:
    """Whether a model collects attention weights in this pass; not all tell their layers."""
    try:
        from transformers.utils.output_capturing import _active_collector as collector
    except ImportError:
        return False
    return any("attentions" in name for name in collector.get() or ())


def _reads(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool | None
) -> Reads:
    queries, keys = query.shape[2], key.shape[2]
    replaced: Bindable | None = getattr(module, REPLACED, None)
    if isinstance(mask, RelationMask):
        if mask.shape[-1] != keys:
            raise SizeError(f"{mask} is for {mask.shape[-1]} keys, and {type(module).__name__} has {keys}")
        if replaced is None:
            return Reads(mask.reading.whole, mask.keys)
        own = _behind(replaced, queries, mask.keys, mask.key_offset, type(module).__name__)
        return Reads(meet(own, mask.reading.given), mask.keys)
    if mask is not None:
        mask = mask[..., :keys].expand(-1, -1, queries, keys)
        return _from_tensor(mask, replaced, keys, type(module).__name__)
    if replaced is not None:
        return Reads(_behind(replaced, queries, keys, 0, type(module).__name__), keys)
    # As for "sdpa": without a mask the module says whether it is causal, and query 0 stands at key 0.
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not causal or queries == 1:
        return Reads(Full(), keys)
    if queries <= keys:
        return Reads(Causal(), queries)
    return Reads(FromMask(np.tri(queries, keys, dtype=bool)), keys)


def _from_tensor(mask: Tensor, replaced: Bindable | None, keys: int, name: str) -> Reads:
    """A dense mask: one the user gave, or one that the model made itself or computed with."""
    bias = None
    if mask.dtype != torch.bool:
        read = mask > torch.finfo(mask.dtype).min / 2
        if bool(((mask != 0) & read).any()) or mask.requires_grad:
            bias = mask
        mask = read
    if replaced is None:
        return Reads(from_dense(mask), keys, bias)
    if bias is not None or not bool(mask.all()):
        raise BackendError(
            f"{name} was given the relation {replaced}, but hands over a dense mask, in which padding cannot "
            "be told from the relation to replace; pass the attention mask as (batch, positions)"
        )
    return Reads(replaced, keys)


def _behind(relation: Any, queries: int, keys: int, offset: int, name: str) -> Any:
    """The rows of a relation for the last `queries` positions, when the `offset` first keys were dropped."""
    if relation.axes:
        return PerHead([_behind(member, queries, keys, offset, name) for member in relation.grid()[0]])
    if offset:
        whole = relation.on(queries, keys + offset)
        if whole.starts.size and whole.starts.min() < offset:
            raise SizeError(
                f"{relation} reads key {whole.starts.min()}, which the sliding cache of {name} has dropped; "
                "give a relation within the window of this layer, or generate with use_cache=False"
            )
        moved = (whole.starts - offset, whole.stops - offset)
        return FromMask._of(Neighborhoods(queries, keys, whole.indptr, *moved))
    if queries < keys:
        # Raises where the rows would not be those of the whole sequence.
        step(relation, keys - queries, keys, None)
    return relation


def _attend(q: Tensor, k: Tensor, v: Tensor, relation: Any, bias: Tensor | None, **options: Any) -> Any:
    """`attend`, with a bias (batch or 1, heads or 1, queries, keys) that may differ between items."""
    if bias is None:
        return attend(q, k, v, relation, **options)
    if bias.shape[0] == 1 and "item" not in relation.axes:
        weighted: Any = Weighted(relation, bias[0])
        return attend(q, k, v, weighted, **options)
    items = relation.items
    outs = [
        _attend(*one, items[b % len(items)], bias[b % len(bias)][None], **options)
        for b, one in enumerate(zip(q[:, None], k[:, None], v[:, None], strict=True))
    ]
    if options.get("return_weights"):
        return tuple(torch.cat(parts) for parts in zip(*outs, strict=True))
    return torch.cat(outs)
