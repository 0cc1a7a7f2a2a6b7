"""Dense, additive and SDPA masks from relations, and relations from them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from erlangen.attention.binding import bind, bind_alone
from erlangen.errors import ParameterError
from erlangen.relations import Bindable, FromMask


def mask(relation: Bindable, queries: int, keys: int | None = None) -> Tensor:
    """The dense mask, True = may read: (queries, keys), with (batch, heads) in front for families.

    >>> from erlangen.relations import Causal
    >>> mask(Causal(), 2)
    tensor([[ True, False],
            [ True,  True]])
    """
    keys = queries if keys is None else keys
    dense = bind_alone(relation, queries, keys).mask().clone()
    return dense if relation.axes else dense[0, 0]


def additive(
    relation: Bindable, queries: int, keys: int | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The additive mask: 0 where a query reads, -inf where it does not.

    A row of nothing but -inf makes softmax NaN; `attend` gives zero there.

    >>> from erlangen.relations import Causal
    >>> additive(Causal(), 2)
    tensor([[0., -inf],
            [0., 0.]])
    """
    dense = mask(relation, queries, keys)
    return torch.zeros(dense.shape, dtype=dtype).masked_fill(~dense, -torch.inf)


def from_additive(values: Tensor) -> FromMask:
    """The relation of an additive mask: 0 is read; -inf and anything <= the type's minimum / 2 is not.

    Any other value is a weight, not a mask, and is refused.

    >>> from_additive(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]))
    FromMask([[1, 0], [1, 1]])
    """
    if not isinstance(values, Tensor) or not values.is_floating_point():
        got = values.dtype if isinstance(values, Tensor) else type(values).__name__
        raise ParameterError(
            f"an additive mask is a tensor of floats, got {got}; of a mask that says what may be read make "
            "FromMask(mask)"
        )
    hidden = values <= torch.finfo(values.dtype).min / 2
    if not (hidden | (values == 0)).all():
        odd = values[~hidden & (values != 0)][0].item()
        raise ParameterError(f"an additive mask holds 0 and -inf (or the type's minimum), got {odd}")
    return FromMask(~hidden)


def sdpa_arguments(relation: Bindable, queries: int, keys: int | None = None) -> dict[str, Any]:
    """What to pass to `F.scaled_dot_product_attention` besides q, k, v: nothing, `is_causal`, or a mask.

    `is_causal` only where it is exact: SDPA puts query 0 at position 0, so the sizes must be equal.

    >>> from erlangen.relations import Causal, Full
    >>> sdpa_arguments(Full(), 4), sdpa_arguments(Causal(), 4), list(sdpa_arguments(Causal(), 2, 4))
    ({}, {'is_causal': True}, ['attn_mask'])
    """
    keys = queries if keys is None else keys
    if not relation.axes:
        bound = bind(relation, batch=1, heads=1, queries=queries, keys=keys)
        if bound.is_full:
            return {}
        if bound.is_causal:
            return {"is_causal": True}
    return {"attn_mask": mask(relation, queries, keys)}
