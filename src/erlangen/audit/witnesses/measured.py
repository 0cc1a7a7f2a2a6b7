"""The measured witness: the captured call run again with zero queries and one-hot values (theorem T1).

At zero queries all scores are equal, so the weights are uniform over the true support and nothing underflows.
The values are unit vectors, as many at a time as the head dimension holds, so the output *is* the weights.
Mask, flags, shapes, types and code path are those of the call. Biases that do not mask count as zero.
How calls of an attention API are run so is in its file of `apis/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from erlangen.audit.support import Support


@dataclass(frozen=True)
class Probe:
    """What a call really reads, and the rows it turns into NaN as (item, head, query)."""

    support: Support
    nan_rows: tuple[tuple[int, int, int], ...] = ()


def one_hot_runs(run: Callable[[torch.Tensor], torch.Tensor], value: torch.Tensor) -> torch.Tensor:
    """The attention weights of a call, from runs with one-hot values of the call's own shape."""
    keys, width = value.shape[-2:]
    chunks = []
    for first in range(0, keys, width):
        size = min(width, keys - first)
        unit = torch.zeros_like(value)
        columns = torch.arange(size, device=value.device)
        unit[..., first + columns, columns] = 1
        chunks.append(run(unit)[..., :size])
    return torch.cat(chunks, dim=-1)


def read_off(weights: torch.Tensor) -> Probe:
    """What attention weights (batch, heads, queries, keys), or marks of what is read, say."""
    broken = weights.isnan().any(dim=-1)
    rows = tuple((int(b), int(h), int(i)) for b, h, i in broken.nonzero().tolist())
    support = (weights > 0) & ~broken.unsqueeze(-1)
    return Probe(Support.from_dense(np.asarray(support.cpu().numpy(), bool)), rows)
