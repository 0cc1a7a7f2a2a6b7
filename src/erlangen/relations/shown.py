"""What every relation, family and weighted relation can do for a reader: print itself, and be a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class Shown:
    """`show(n)` and `mask(n)`, at a size."""

    __slots__ = ()

    drawing: ClassVar[Callable[..., Any]]
    """What draws a relation at a size. Drawing builds on relations, so `erlangen`, above both, sets it."""

    def show(self, queries: int | None = None, keys: int | None = None) -> None:
        """Print the matrix at a size, as `erlangen show` does; relations with a size of their own need none.

        In a terminal that has them the marks are squares and dots.

        >>> from erlangen.relations import Causal, Window
        >>> (Causal() & Window(lookback=1)).show(4)
        Window(lookback=1) on 4 queries x 4 keys
        edges 7 of 16, density 0.4375, empty rows none
             key j (read)
             0 1 2 3
          0  # . . .
          1  # # . .
          2  . # # .
          3  . . # #
        """
        print(Shown.drawing(self, queries, keys).text())

    def mask(self, queries: int, keys: int | None = None) -> Tensor:
        """The dense torch mask, True = may read: (queries, keys), with (batch, heads) in front for families.

        For NumPy write `relation.on(n).dense()`. Of a weighted relation it is the mask of its support.

        >>> from erlangen.relations import Causal, PerHead, Full
        >>> Causal().mask(2)
        tensor([[ True, False],
                [ True,  True]])
        >>> PerHead([Causal(), Full()]).mask(1, 3).shape
        torch.Size([1, 2, 1, 3])
        """
        import torch  # relations do without, until a tensor is asked for

        relation: Any = self
        dense = np.array([[one.on(queries, keys).dense() for one in item] for item in relation.grid()])
        return torch.from_numpy(dense if relation.axes else dense[0, 0])
