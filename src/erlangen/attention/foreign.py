"""Arguments of other attention functions that people type out of habit, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from erlangen.errors import ParameterError

_MASK = (
    "write relation=FromMask(mask) for a boolean mask (queries, keys), True = may read; "
    "Batch.from_mask(mask) where items or heads differ; integrations.masks.from_additive(mask) for one "
    "that is added to the scores"
)
_PADDING = "write relation=Batch.from_mask({}), or relation & Batch.from_mask({}) where there is one already"
_PACKED = "write relation=Documents.from_cu_seqlens(cu_seqlens), with & Causal() where it is causal"
_SCALE = "write scale={!r}"

WORDS = {
    "attn_mask": _MASK,
    "mask": _MASK,
    "attention_mask": _PADDING.replace("{}", "attention_mask") + ", 1 = real",
    "key_padding_mask": _PADDING.replace("{}", "~key_padding_mask") + "; there True = padding",
    "attn_bias": "write relation=Weighted(...), ALiBi(...) or RelativeBias(...)",
    "alibi_slopes": "write relation=ALiBi(slopes)",
    "block_mask": "write relation=integrations.flex.from_block_mask(block_mask)",
    "score_mod": "write a weighted relation (relation=ALiBi(...)), or kernel=",
    "is_causal": "write relation=Causal(); with fewer queries than keys these are the last positions",
    "causal": "write relation=Causal(); with fewer queries than keys these are the last positions",
    "window_size": "write relation=Window(lookback, lookahead)",
    "cu_seqlens": _PACKED,
    "cu_seqlens_q": _PACKED,
    "cu_seqlens_k": _PACKED,
    "dropout_p": "write dropout={!r}",
    "softmax_scale": _SCALE,
    "scaling": _SCALE,
    "enable_gqa": "leave it out: fewer key/value heads than heads are always grouped",
    "need_weights": "write return_weights={!r}",
    "return_attn_probs": "write return_weights={!r}",
}
"""Argument -> what to write instead; {!r} is the value that was given."""


def refuse(function: str, given: Mapping[str, Any]) -> NoReturn:
    """Raise: an argument of another library, with the word for it here; any other as Python does.

    >>> refuse("attend", {"dropout_p": 0.1})
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: attend takes no dropout_p=: write dropout=0.1
    >>> refuse("attend", {"droput": 0.1})
    Traceback (most recent call last):
    ...
    TypeError: attend() got an unexpected keyword argument 'droput'
    """
    name, value = next(iter(given.items()))
    if name not in WORDS:
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    raise ParameterError(f"{function} takes no {name}=: {WORDS[name].format(value)}")
