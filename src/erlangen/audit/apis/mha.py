"""`F.multi_head_attention_forward`, the body of `nn.MultiheadAttention` off its fast path."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from erlangen.audit.apis.attention_call import Call, Diagonal, register
from erlangen.audit.capture.content_keys import content_key, fingerprint
from erlangen.audit.capture.masking import level_mask, readable
from erlangen.audit.support import Support
from erlangen.audit.witnesses.declared import support_of
from erlangen.audit.witnesses.measured import Probe, one_hot_runs, read_off

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session

MHA: Any = F.multi_head_attention_forward
"""Held here, so that a library that replaces it by name is still seen to call it."""


@register
@dataclass(eq=False)
class MHACall(Call):
    """One call of `F.multi_head_attention_forward`; query is (length, batch, dim) or (length, dim)."""

    api = "mha"
    watches = "`F.multi_head_attention_forward`, which `nn.MultiheadAttention` calls"
    declares = "`attn_mask`, `key_padding_mask`"

    arguments: dict[str, Any]

    @classmethod
    def watch(cls, session: Session) -> None:
        session.watch_torch(MHA, partial(cls._record, session))

    @classmethod
    def _record(cls, session: Session, *args: Any, **kwargs: Any) -> MHACall:
        given = arguments(*args, **kwargs)
        query, key = given["query"], given["key"]
        batch = query.shape[1] if query.dim() == 3 else 1
        return cls(
            session.frames.name(), batch, given["num_heads"], query.shape[0], key.shape[0], given,
            fingerprints=(fingerprint(query), fingerprint(key)),
        )  # fmt: skip

    @property
    def cache_key(self) -> Any:
        given = self.arguments
        tensors = tuple((t.shape, t.dtype, t.device) for t in self.vectors())
        masks = content_key(given["attn_mask"]), content_key(given["key_padding_mask"])
        flags = given["num_heads"], given["add_zero_attn"], given["need_weights"], given["is_causal"]
        projections = (
            given["use_separate_proj_weight"],
            given["bias_k"] is None,
            given["in_proj_bias"] is None,
        )
        return tensors, masks, flags, projections, given["average_attn_weights"]

    def declared(self) -> Support:
        mask, padding = self.arguments["attn_mask"], self.arguments["key_padding_mask"]
        allowed = torch.ones(self.queries, self.keys, dtype=torch.bool, device="cpu")
        if mask is not None:
            read = _readable(mask)
            allowed = allowed & (self.folded(read) if mask.dim() == 3 else read)
        if padding is not None:
            allowed = allowed & _readable(padding).reshape(self.batch, 1, 1, self.keys)
        return support_of(allowed, self, (self.batch, self.heads))

    def measured(self) -> Probe:
        given = self.arguments
        if given["static_k"] is not None or given["static_v"] is not None:
            raise ValueError("static keys and values are given")
        dim, heads = given["embed_dim_to_check"], self.heads
        query, key = given["query"], given["key"]
        unit = torch.eye(dim, dtype=query.dtype, device=query.device)
        zero = torch.zeros_like(unit)
        changed: dict[str, Any] = {
            "query": torch.zeros_like(query),
            "key": torch.zeros_like(key),
            "out_proj_weight": unit,
            "out_proj_bias": None,
            "training": False,
        }
        for name in ("in_proj_bias", "bias_k", "bias_v"):
            changed[name] = None if given[name] is None else torch.zeros_like(given[name])
        if given["use_separate_proj_weight"]:
            changed |= {"q_proj_weight": zero, "k_proj_weight": torch.zeros_like(given["k_proj_weight"])}
            changed["v_proj_weight"] = unit
        else:
            changed["in_proj_weight"] = torch.cat([zero, zero, unit])
        for name in ("attn_mask", "key_padding_mask"):
            changed[name] = level_mask(given[name])
        arguments = given | changed

        def run(value: torch.Tensor) -> torch.Tensor:
            """(..., heads, keys, width) -> (batch, heads, queries, width)"""
            packed = value.movedim(-2, 0).flatten(-2)
            out = MHA(**(arguments | {"value": packed}))[0]
            return out.reshape(self.queries, self.batch, heads, dim // heads).permute(1, 2, 0, 3)

        batch = key.shape[1:-1]
        value = torch.zeros(*batch, heads, self.keys, dim // heads, dtype=query.dtype, device=query.device)
        return read_off(one_hot_runs(run, value))

    def log_weights(self) -> torch.Tensor | None:
        mask, padding = self.arguments["attn_mask"], self.arguments["key_padding_mask"]
        total = torch.zeros((), device="cpu")
        if mask is not None and mask.is_floating_point():
            total = mask if mask.dim() == 2 else self.folded(mask)
        if padding is not None and padding.is_floating_point():
            total = total + padding.reshape(self.batch, 1, 1, self.keys)
        return total if total.dim() else None

    def alpha(self) -> None:
        """It is run without its log-weights alone."""

    def vectors(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.arguments["query"], self.arguments["key"]

    @classmethod
    def diagonal(cls, n: int) -> Diagonal:
        def run(function: Any, args: Any, kwargs: Any) -> Any:
            if function is not MHA:
                return NotImplemented
            given = arguments(*args, **kwargs)
            if not given["query"].shape[0] == given["key"].shape[0] == n:
                return NotImplemented
            others = ~torch.eye(n, dtype=torch.bool, device=given["query"].device)
            own = {"attn_mask": others, "key_padding_mask": None, "is_causal": False}
            return MHA(**(given | own))

        return run


def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Every argument of a call by its name."""
    bound = inspect.signature(MHA).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _readable(mask: torch.Tensor) -> torch.Tensor:
    """True where a mask in the sense of `nn.MultiheadAttention`, whose True hides, lets a query read."""
    return (~mask if mask.dtype == torch.bool else readable(mask)).cpu()
