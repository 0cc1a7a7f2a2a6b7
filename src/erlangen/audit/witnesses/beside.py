"""What flows beside attention: the model with every attention call cut to the diagonal.

A call whose every query reads its own key alone hands on the value of its own row. If the calls are as
expected, everything else that a decoder does must then keep to its row, which log n runs show for every pair
of positions: each position is given its own set of as many runs as any other, and is changed in those, so
that of two positions each is changed in a run in which the other is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from math import comb
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from erlangen.audit.apis.mha import arguments
from erlangen.audit.capture.tape import name_of

_SDPA, _MHA = F.scaled_dot_product_attention, F.multi_head_attention_forward
APIS = frozenset({"sdpa", "mha", "eager"})
"""The kinds of calls that can be cut."""


class Cut(TorchFunctionMode):
    """Runs a model whose attention over `n` positions reads each its own; `count` calls were cut."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n, self.count = n, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _SDPA:
            query, _, value = (
                args[place] if place < len(args) else kwargs[name]
                for place, name in enumerate(("query", "key", "value"))
            )
            if query.shape[-2] == value.shape[-2] == self._n:
                self.count += 1
                heads = query.shape[-3] // value.shape[-3] if query.dim() > 2 and value.dim() > 2 else 1
                return value.repeat_interleave(heads, dim=-3) if heads > 1 else value.clone()
        elif func is _MHA:
            given = arguments(*args, **kwargs)
            if given["query"].shape[0] == given["key"].shape[0] == self._n:
                self.count += 1
                others = ~torch.eye(self._n, dtype=torch.bool, device=given["query"].device)
                own = {"attn_mask": others, "key_padding_mask": None, "is_causal": False}
                return func(**(given | own))
        out = func(*args, **kwargs)
        weights = name_of(func) == "softmax" and isinstance(out, torch.Tensor) and out.dim() > 2
        if weights and out.shape[-2:] == (self._n, self._n):
            self.count += 1
            return torch.eye(self._n, dtype=out.dtype, device=out.device).expand_as(out).contiguous()
        return out


def separating(n: int) -> Iterator[list[int]]:
    """Sets of positions such that for any two positions one of the sets has the first and not the second.

    >>> [len(one) for one in separating(6)], len(list(separating(1024)))
    ([3, 3, 3, 3], 13)
    """
    runs = next(count for count in range(1, n + 2) if comb(count, count // 2) >= n)
    members = list(islice(combinations(range(runs), runs // 2), n))
    for run in range(runs):
        yield [position for position, member in enumerate(members) if run in member]
