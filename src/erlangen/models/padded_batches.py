"""Padded batches: from a mask of the real tokens to the relation in which nobody reads the others."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from erlangen.errors import ShapeError
from erlangen.relations import Batch, PerHead, Relation
from erlangen.relations.key_sets import keys_read


def unpadded(
    relation: Relation | PerHead, mask: Tensor | None, tokens: Tensor, what: str = "attention_mask"
) -> Relation | PerHead | Batch:
    """The relation without the keys that `mask` marks as padding (0); the relation itself without a mask.

    `mask` has the shape of `tokens`, (n,) or (batch, n), and there is one relation per item: with `Padding`
    where the padding is on one side, else with `Global` of the real keys.

    >>> import torch
    >>> from erlangen.relations import Full
    >>> tokens = torch.zeros(3, 4)
    >>> unpadded(Full(), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 1, 1]]), tokens)
    Batch([Padding(2), Full(), Global(keys=(0, 2, 3))])
    """
    if mask is None:
        return relation
    if mask.shape != tokens.shape:
        raise ShapeError(f"{what} marks the real tokens of {tuple(tokens.shape)}, got {tuple(mask.shape)}")
    rows = (mask.detach().cpu().reshape(-1, mask.shape[-1]) != 0).numpy()
    if rows.all():
        return relation
    # Few of the rows of a batch differ: each is read, and met with the relation, once.
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    members = [relation & keys_read(row) for row in distinct]
    return Batch([members[index] for index in which.ravel().tolist()])
