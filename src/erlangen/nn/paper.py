"""The paper's six attention layers, as thin wrappers of `attend`: one head, no output projection.

Each has the parameters `Q.weight`, `K.weight`, `V.weight`, takes inputs (n, d) or (batch, n, d), and returns
`(h, weights)`; with `need_weights=False` the weights are None and never formed. A query that reads nothing
gives zeros.
"""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from erlangen.attention import attend
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import (
    Batch,
    Bindable,
    Causal,
    FromMask,
    Full,
    Neighborhoods,
    Relation,
    Window,
    sizes,
)
from erlangen.relations.protocol import AnyRelation, expect


class PaperAttention(nn.Module):
    """What the six share: h = softmax over N_i of <Q x_i, K y_j> / sqrt(d_model), applied to V y."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = sizes.count(d_model, f"{type(self).__name__}(d_model)", least=1)
        self.Q = nn.Linear(self.d_model, self.d_model, bias=False)
        self.K = nn.Linear(self.d_model, self.d_model, bias=False)
        self.V = nn.Linear(self.d_model, self.d_model, bias=False)

    def _attend(
        self, x: Tensor, source: Tensor, relation: Bindable | Neighborhoods, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        for name, value in (("x", x), ("its source", source)):
            if value.dim() < 2 or value.shape[-1] != self.d_model or value.shape[:-2] != x.shape[:-2]:
                raise ShapeError(
                    f"{type(self).__name__}({self.d_model}) takes (n, {self.d_model}) or "
                    f"(batch, n, {self.d_model}); {name} has shape {tuple(value.shape)}"
                )
        q, k, v = (x.unsqueeze(-3) for x in (self.Q(x), self.K(source), self.V(source)))
        out = attend(q, k, v, relation, return_weights=need_weights)
        h, weights = out if need_weights else (out, None)
        return h.squeeze(-3), None if weights is None else weights.squeeze(-3)


@final
class SelfAttention(PaperAttention):
    """Definition 5: every position reads every position, `Full()`.

    >>> import torch
    >>> h, weights = SelfAttention(4)(torch.randn(3, 4))
    >>> h.shape, weights.shape
    (torch.Size([3, 4]), torch.Size([3, 3]))
    """

    def forward(self, x: Tensor, *, need_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, x, Full(), need_weights)


@final
class MaskedAttention(PaperAttention):
    """Definition 7: positions read themselves and the past, `Causal()`.

    >>> import torch
    >>> h, weights = MaskedAttention(4)(torch.randn(3, 4))
    >>> bool((weights.triu(1) == 0).all())
    True
    """

    def forward(self, x: Tensor, *, need_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, x, Causal(), need_weights)


@final
class EncoderDecoderAttention(PaperAttention):
    """Definition 6: decoder positions `x` read all encoder positions, a complete bipartite relation.

    >>> import torch
    >>> h, weights = EncoderDecoderAttention(4)(torch.randn(3, 4), torch.randn(5, 4))
    >>> h.shape, weights.shape
    (torch.Size([3, 4]), torch.Size([3, 5]))
    """

    def forward(
        self, x: Tensor, encoder: Tensor, *, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, encoder, Full(), need_weights)


@final
class StridedAttention(PaperAttention):
    """Definition 8: positions read themselves and a few before. `stride` counts the keys, itself included.

    The relation is `Window(lookback=stride - 1)`; Definition 8's k is `stride - 1`.

    >>> import torch
    >>> h, weights = StridedAttention(4, stride=2)(torch.randn(4, 4))
    >>> (weights > 0).sum(-1).tolist()
    [1, 2, 2, 2]
    """

    def __init__(self, d_model: int, stride: int = 3) -> None:
        super().__init__(d_model)
        self.stride = sizes.count(stride, "StridedAttention(stride)", least=1)

    def forward(self, x: Tensor, *, need_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, x, Window(lookback=self.stride - 1), need_weights)


@final
class SparseAttention(PaperAttention):
    """Any fixed relation, the same for every instance.

    >>> import torch
    >>> from erlangen.relations import Dilated
    >>> h, weights = SparseAttention(4, Dilated(2))(torch.randn(4, 4))
    >>> (weights > 0).int().tolist()
    [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]
    """

    def __init__(self, d_model: int, relation: Relation) -> None:
        super().__init__(d_model)
        self.relation = expect(relation, "SparseAttention(relation) takes a Relation")

    def forward(self, x: Tensor, *, need_weights: bool = True) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, x, self.relation, need_weights)


@final
class GraphAttention(PaperAttention):
    """Definition 9: the relation comes with each instance, as an adjacency matrix or as a relation.

    `adjacency[i, j] != 0` lets i read j. A batch of instances takes (n, n) for all or (batch, n, n).

    >>> import torch
    >>> h, weights = GraphAttention(4)(torch.randn(2, 4), torch.tensor([[0, 1], [0, 0]]))
    >>> weights.tolist(), h[1].tolist()
    ([[0.0, 1.0], [0.0, 0.0]], [0.0, 0.0, 0.0, 0.0])
    """

    def forward(
        self, x: Tensor, adjacency: Tensor | Relation | Neighborhoods | Batch, *, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        return self._attend(x, x, _relation_of(adjacency, x), need_weights)


def _relation_of(
    adjacency: Tensor | Relation | Neighborhoods | Batch, x: Tensor
) -> Relation | Neighborhoods | Batch:
    if isinstance(adjacency, AnyRelation):
        return adjacency
    if not isinstance(adjacency, Tensor):
        raise ParameterError(
            f"adjacency must be a tensor (n, n), a relation or neighborhoods, got {type(adjacency).__name__}"
        )
    n = x.shape[-2]
    mask = (adjacency.to_dense() if adjacency.layout is not x.layout else adjacency) != 0
    if mask.shape == (n, n):
        return FromMask(mask)
    if x.dim() == 3 and mask.shape == (x.shape[0], n, n):
        return Batch([FromMask(item) for item in mask])
    raise ShapeError(
        f"adjacency must have shape ({n}, {n}) or (batch, {n}, {n}) for x {tuple(x.shape)}, "
        f"got {tuple(adjacency.shape)}"
    )
