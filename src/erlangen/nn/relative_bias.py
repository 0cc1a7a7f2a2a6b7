"""A learned relative position bias, shared by the layers that are given it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from erlangen.relations import Bindable, Full, sizes
from erlangen.relations import RelativeBias as RelativeBiasRelation
from erlangen.relations.weighted.position_buckets import check_buckets


class RelativeBias(nn.Module):
    """T5's learned bias: one number per head and bucket of differences j - i, in the parameter `table`.

    Calling it with a relation gives the weighted relation to attend over; gradients reach `table`.

    >>> from erlangen.nn import Attention
    >>> from erlangen.relations import Causal
    >>> layer, bias = Attention(8, num_heads=2), RelativeBias(2, bidirectional=False)
    >>> bias(Causal())
    RelativeBias(table=<2 x 32 learned numbers>, bidirectional=False, max_distance=128, relation=Causal())
    >>> layer(torch.randn(5, 8), relation=bias(Causal())).sum().backward()
    >>> bias.table.grad.shape
    torch.Size([2, 32])
    """

    table: Tensor

    def __init__(
        self, num_heads: int, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
    ) -> None:
        super().__init__()
        num_heads = sizes.count(num_heads, "RelativeBias(num_heads)", least=1)
        check_buckets(sizes.count(buckets, "RelativeBias(buckets)", least=1), max_distance, bidirectional)
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.table = nn.Parameter(torch.zeros(num_heads, buckets))

    def forward(self, relation: Bindable | None = None) -> RelativeBiasRelation:
        """The relation (`Full()` if not given) with these weights."""
        return RelativeBiasRelation(
            self.table,
            relation=Full() if relation is None else relation,
            bidirectional=self.bidirectional,
            max_distance=self.max_distance,
        )

    def extra_repr(self) -> str:
        heads, buckets = self.table.shape
        reach = f"max_distance={self.max_distance}, bidirectional={self.bidirectional}"
        return f"{heads}, buckets={buckets}, {reach}"
