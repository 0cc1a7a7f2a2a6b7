"""`F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from erlangen.audit.apis.attention_call import Diagonal, TensorCall, register
from erlangen.audit.capture.content_keys import content_key
from erlangen.audit.capture.masking import level_mask, readable
from erlangen.audit.support import Support
from erlangen.audit.witnesses.declared import support_of
from erlangen.audit.witnesses.measured import Probe, read_off

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

SDPA = F.scaled_dot_product_attention
"""Held here, so that a library that replaces it by name is still seen to call it."""


@register
@dataclass(eq=False)
class SDPACall(TensorCall):
    """One call of `F.scaled_dot_product_attention`."""

    api = "sdpa"
    watches = "`F.scaled_dot_product_attention`"
    declares = "the mask, `is_causal` (j <= i, counted from the first query)"

    mask: torch.Tensor | None
    is_causal: bool
    options: dict[str, Any]

    @classmethod
    def watch(cls, session: Session) -> None:
        def record(
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attn_mask: torch.Tensor | None = None,
            dropout_p: float = 0.0,
            is_causal: bool = False,
            **options: Any,
        ) -> SDPACall:
            return cls.of(session, query, key, value, attn_mask, is_causal, options)

        session.watch_torch(SDPA, record)

    @property
    def cache_key(self) -> Any:
        return self.layout, content_key(self.mask), self.is_causal, tuple(sorted(self.options.items()))

    def declared(self) -> Support:
        allowed = torch.ones(self.queries, self.keys, dtype=torch.bool, device="cpu")
        if self.is_causal:
            allowed = allowed.tril()
        if self.mask is not None:
            allowed = allowed & readable(self.mask).cpu()
        return support_of(allowed, self, self.query.shape[:-2])

    def measured(self) -> Probe:
        return read_off(self._weights(level_mask(self.mask)))

    def log_weights(self) -> torch.Tensor | None:
        mask = self.mask
        if mask is None or not mask.is_floating_point():
            return None
        if mask.dim() == 2:
            return mask
        return self.folded(mask.expand(*self.query.shape[:-2], self.queries, self.keys))

    def alpha(self) -> torch.Tensor:
        return self._weights(self.mask)

    @classmethod
    def diagonal(cls, n: int) -> Diagonal:
        def run(function: Any, args: Any, kwargs: Any) -> Any:
            if function is not SDPA:
                return NotImplemented
            given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
            query, value = given["query"], given["value"]
            if not query.shape[-2] == value.shape[-2] == n:
                return NotImplemented
            heads = query.shape[-3] // value.shape[-3] if query.dim() > 2 and value.dim() > 2 else 1
            return value.repeat_interleave(heads, dim=-3) if heads > 1 else value.clone()

        return run

    def _weights(self, mask: torch.Tensor | None) -> torch.Tensor:
        return self.at_equal_scores(
            lambda q, k, v: SDPA(
                q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=self.is_causal, **self.options
            )
        )
