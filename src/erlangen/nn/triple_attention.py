"""The ternary attention layer: each position reads pairs of positions."""

from __future__ import annotations

from torch import Tensor, nn

from erlangen.attention import attend_triples
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import TernaryRelation as HyperRelation
from erlangen.relations import sizes
from erlangen.relations.protocol import expect


class TripleAttention(nn.Module):
    """Multi-head attention over a ternary relation T: h_i is a mean over the *pairs* (j, l) in T_i.

    Per head, with `*` elementwise,

        h_i = sum over (j, l) in T_i of alpha_ijl (V1 x_j * V2 x_l),
        alpha_i = softmax over T_i of <Q x_i, K1 x_j, K2 x_l> / sqrt(head dim)

    where <a, b, c> = sum_d a_d b_d c_d; the heads are concatenated and projected by `O`. A query that reads
    no pair gives the zero vector. Parameters are the linear maps `Q`, `K1`, `K2`, `V1`, `V2`, `O`, without
    bias: 6 d_model^2 numbers.

    Its symmetry group is Aut(T) for generic weights. (It may be larger for special ones: where V1 and V2 are
    proportional in every feature, near zero (j, l) is not told from (l, j).) Logits that are *added*,
    <Q x_i, K1 x_j> + <Q x_i, K2 x_l>, over T_i = N_i x N_i would only give the product of two ordinary
    attentions.

    >>> import torch
    >>> from erlangen.relations import Fano, WindowSquared
    >>> layer = TripleAttention(8, num_heads=2, hyperrelation=Fano())
    >>> layer(torch.randn(7, 8)).shape, layer(torch.randn(3, 7, 8)).shape
    (torch.Size([7, 8]), torch.Size([3, 7, 8]))
    >>> layer(torch.randn(5, 8), hyperrelation=WindowSquared(lookback=2)).shape
    torch.Size([5, 8])
    """

    def __init__(self, d_model: int, num_heads: int, hyperrelation: HyperRelation) -> None:
        super().__init__()
        d_model = sizes.count(d_model, "TripleAttention(d_model)", least=1)
        num_heads = sizes.count(num_heads, "TripleAttention(num_heads)", least=1)
        if d_model % num_heads:
            raise ParameterError(f"d_model={d_model} must be a multiple of num_heads={num_heads}")
        taken = "TripleAttention(hyperrelation) takes a HyperRelation such as Fano()"
        expect(hyperrelation, taken, arity=3)
        self.d_model, self.num_heads = d_model, num_heads
        self.head_dim = d_model // num_heads
        self.hyperrelation = hyperrelation
        self.Q, self.K1, self.K2, self.V1, self.V2, self.O = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(6)
        )

    def extra_repr(self) -> str:
        return f"{self.d_model}, num_heads={self.num_heads}, hyperrelation={self.hyperrelation!r}"

    def forward(self, x: Tensor, *, hyperrelation: HyperRelation | None = None) -> Tensor:
        """`x` (n, d_model) or (batch, n, d_model) -> the same shape; a call may pass another relation."""
        if x.dim() not in (2, 3) or x.shape[-1] != self.d_model:
            raise ShapeError(
                f"x must be (n, {self.d_model}) or (batch, n, {self.d_model}); got {tuple(x.shape)}"
            )
        wanted = self.hyperrelation if hyperrelation is None else hyperrelation
        q, k1, k2 = (self._heads(layer(x)) for layer in (self.Q, self.K1, self.K2))
        v1, v2 = (self._heads(layer(x)) for layer in (self.V1, self.V2))
        h = attend_triples(q, k1, k2, v1, v2, wanted)
        return self.O(h.transpose(-3, -2).flatten(-2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-3, -2)
