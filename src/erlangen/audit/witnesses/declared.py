"""The declared witness: the relation that the mask, flags and bias of a call say.

An additive bias is an edge unless it masks (`capture.masking`). Which arguments declare something is in the
file of the attention API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from erlangen.audit.support import Support
from erlangen.relations import Neighborhoods

if TYPE_CHECKING:
    from erlangen.audit.apis.attention_call import Call


def support_of(allowed: torch.Tensor, call: Call, leading: tuple[int, ...]) -> Support:
    """A mask, True = may read, that broadcasts to the leading dimensions of a call, its queries and keys."""
    if allowed.dim() == 2 or all(size == 1 for size in allowed.shape[:-2]):
        one = allowed.reshape(allowed.shape[-2:]).expand(call.queries, call.keys)
        return Support.same(Neighborhoods.from_dense(one.numpy()), call.batch, call.heads)
    return Support.from_dense(call.folded(allowed.expand(*leading, call.queries, call.keys)).numpy())
