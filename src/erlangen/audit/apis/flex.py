"""FlexAttention, plain or compiled, however the function was reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from erlangen.audit.apis.attention_call import TensorCall, register
from erlangen.audit.capture.content_keys import UnknownContent, content_key, fingerprint, function_key
from erlangen.audit.capture.masking import least_logarithm, leveled, masks
from erlangen.audit.capture.watching import loaded
from erlangen.audit.support import Support
from erlangen.audit.witnesses.measured import Probe, read_off

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


@register
@dataclass(eq=False)
class FlexCall(TensorCall):
    """One call of `torch.nn.attention.flex_attention.flex_attention`."""

    api = "flex"
    watches = "`flex_attention`, plain or compiled"
    declares = "the `mask_mod` of the block mask, what the `score_mod` makes of a score of zero"

    function: Callable[..., Any]
    score_mod: Callable[..., Any] | None
    block_mask: Any
    options: dict[str, Any]

    @classmethod
    def watch(cls, session: Session) -> None:
        def record(
            run: Callable[..., Any],
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            score_mod: Callable[..., Any] | None = None,
            block_mask: Any = None,
            **options: Any,
        ) -> FlexCall:
            batch, heads, queries, _ = query.shape
            return cls(
                session.frames.name(), batch, heads, queries, key.shape[-2], query, key, value,
                run, score_mod, block_mask, options, fingerprints=(fingerprint(query), fingerprint(key)),
            )  # fmt: skip

        session.watch_function(loaded("torch.nn.attention.flex_attention", "flex_attention"), record)

    @property
    def cache_key(self) -> Any:
        try:
            mods = self._block_mask_key(), function_key(self.score_mod)
        except UnknownContent:
            return None
        return self.layout, *mods, tuple(sorted((name, repr(value)) for name, value in self.options.items()))

    def _block_mask_key(self) -> Any:
        if self.block_mask is None:
            return None
        parts = self.block_mask.as_tuple()
        blocks = tuple(content_key(part) for part in parts if isinstance(part, torch.Tensor))
        return blocks, tuple(self.block_mask.BLOCK_SIZE), function_key(self.block_mask.mask_mod)

    def declared(self) -> Support:
        shape = self.batch, self.heads, self.queries, self.keys
        allowed = torch.ones(shape, dtype=torch.bool, device=self.query.device)
        if self.block_mask is not None and self.block_mask.mask_mod is not None:
            allowed = allowed & self._over_all_pairs(self.block_mask.mask_mod)
        bias = self.log_weights()
        if bias is not None:
            allowed = allowed & ~masks(bias)
        return Support.from_dense(allowed.cpu().numpy())

    def measured(self) -> Probe:
        return read_off(self._weights(self._level_score_mod()))

    def log_weights(self) -> torch.Tensor | None:
        """What the score_mod makes of a score of zero."""
        score_mod = self.score_mod
        if score_mod is None:
            return None
        zero = torch.zeros((), dtype=self.query.dtype, device=self.query.device)
        return self._over_all_pairs(lambda *at: score_mod(zero, *at))

    def alpha(self) -> torch.Tensor:
        return self._weights(self.score_mod)

    @classmethod
    def diagonal(cls, n: int) -> None:
        """No function mode sees it."""

    def _weights(self, score_mod: Any) -> torch.Tensor:
        def run(*tensors: torch.Tensor) -> torch.Tensor:
            out = self.function(*tensors, score_mod=score_mod, block_mask=self.block_mask, **self.options)
            return out[0] if isinstance(out, tuple) else out

        return self.at_equal_scores(run)

    def _level_score_mod(self) -> Any:
        """The score_mod; where its weights are so low that they would vanish, its masks alone."""
        bias = self.log_weights()
        if bias is None or not bool(((bias < least_logarithm(bias.dtype) / 2) & ~masks(bias)).any()):
            return self.score_mod
        table = leveled(bias)
        return lambda score, b, h, i, j: score + table[b, h, i, j]

    def _over_all_pairs(self, mod: Callable[..., Any]) -> torch.Tensor:
        """A mod at every (batch item, head, query, key)."""
        shape = self.batch, self.heads, self.queries, self.keys
        for axis in reversed(range(4)):
            mod = torch.vmap(mod, in_dims=tuple(0 if a == axis else None for a in range(4)))
        indices = (torch.from_numpy(np.arange(size)).to(self.query.device) for size in shape)
        return mod(*indices).expand(shape)
