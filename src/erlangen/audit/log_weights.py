"""Finite biases as weights: what they are, up to the gauge that a softmax does not see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from erlangen.audit.capture.masking import MASKING

if TYPE_CHECKING:
    from erlangen.audit.apis.attention_call import Call
    from erlangen.audit.support import Support

CLOSE = 2e-3
"""Biases this close, relative to the largest, count as equal: models compute them in half precision, too."""


_ORDER = ("ALiBi", "Toeplitz", "by key", "by pair")
"""The forms, each more general than the one before; a call has the most general of its heads."""


@dataclass(frozen=True)
class Weights:
    """The log-weights that a call adds to its scores, per head and up to a constant in every row.

    `form` is the first that fits: `ALiBi` (-slope |i - j|), `Toeplitz` (a function of j - i), `by key` (a
    function of the key alone) or `by pair`. `slopes` has one number for each head. `low` is the lowest
    log-weight, where the largest of each row is 0.
    """

    form: str
    heads: int
    low: float
    slopes: tuple[float, ...] | None = None
    same_items: bool = True
    """Whether all batch items have the same weights."""
    applied: bool | None = None
    """Whether the kernel, run again, gives these weights; None where it was not run with them."""

    def __str__(self) -> str:
        told = {
            "ALiBi": "Toeplitz, ALiBi",
            "Toeplitz": "Toeplitz: by j - i",
            "by key": "by the key alone",
            "by pair": "a finite bias by pair, not constant",
        }[self.form]
        if self.slopes is not None:
            told += f" with slopes {', '.join(f'{slope:.4g}' for slope in self.slopes)}"
        else:
            told += f", log-weights down to {self.low:.4g}"
        if not self.same_items:
            told += ", another in each batch item"
        return told + (", NOT APPLIED by the kernel" if self.applied is False else "")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "form": self.form,
            "slopes": None if self.slopes is None else list(self.slopes),
            "lowest_log_weight": self.low,
            "same_items": self.same_items,
            "applied": self.applied,
            "text": str(self),
        }


def weights(call: Call, support: Support) -> Weights | None:
    """The finite biases of a call as weights, where `support` is what it reads; None without any."""
    bias = call.log_weights()
    if bias is None or not ((bias > MASKING) & (bias != 0)).any():
        return None
    read = support.dense()
    values = bias.detach().double().cpu().expand(call.batch, call.heads, call.queries, call.keys).numpy()
    told = weights_of(values, read)
    alpha = None if told is None else call.alpha()
    return told if alpha is None else weights_of(values, read, alpha.detach().double().cpu().numpy())


def weights_of(bias: np.ndarray, read: np.ndarray, alpha: np.ndarray | None = None) -> Weights | None:
    """The weights of a call, or None where its bias is the same for all keys of every row: no weights.

    `bias` and `read` have shape (batch, heads, queries, keys); `alpha` are the attention weights that the
    kernel gives at equal scores.

    >>> i, j = np.indices((4, 4))
    >>> causal = np.broadcast_to(j <= i, (1, 2, 4, 4))
    >>> by_key = np.stack([0.5 * j, 0.25 * j])[None]
    >>> print(weights_of(by_key, causal))
    Toeplitz, ALiBi with slopes 0.5, 0.25
    >>> print(weights_of(np.broadcast_to(7.0 * i, (1, 2, 4, 4)), causal))
    None
    """
    read = read & (bias > MASKING)  # a fully masked row may be read all the same; its mask is no weight
    bias = np.where(read, bias, -np.inf).astype(np.float64)
    largest = bias.max(axis=-1, keepdims=True, initial=-np.inf)
    logs = np.where(read, bias - np.where(np.isfinite(largest), largest, 0), 0.0)
    scales = -logs.min(axis=(0, 2, 3), initial=0.0)
    # Less than rounding of the bias itself is no weight.
    if scales.max() <= CLOSE * max(1.0, float(np.abs(np.where(read, bias, 0)).max(initial=0.0))) / 10:
        return None
    tolerances = np.maximum(CLOSE * scales, CLOSE * scales.max() / 100)
    same = _same_items(logs, read, tolerances)
    items = [int(read.sum(axis=(1, 2, 3)).argmax())] if same else range(len(logs))
    forms = [_form(logs[b, h], read[b, h], float(tolerances[h])) for b in items for h in range(logs.shape[1])]
    form = max((name for name, _ in forms), key=_ORDER.index)
    slopes = tuple(slope for _, slope in forms if slope is not None) if form == "ALiBi" and same else None
    applied = None if alpha is None else _agrees(logs, read, alpha)
    return Weights(form, logs.shape[1], -float(scales.max()), slopes, same, applied)


def _same_items(logs: np.ndarray, read: np.ndarray, tolerances: np.ndarray) -> bool:
    """Whether all batch items have the log-weights of the first, up to a constant in each row."""
    both = read & read[:1]
    difference = logs - logs[:1]
    low = np.where(both, difference, np.inf).min(axis=-1)
    high = np.where(both, difference, -np.inf).max(axis=-1)
    return bool((high - low <= 2 * tolerances[:, None]).all())  # rows with nothing in common: -inf


def _form(logs: np.ndarray, read: np.ndarray, tolerance: float) -> tuple[str, float | None]:
    """What one head's log-weights are, and their slope if they fall linearly with the distance."""
    queries, keys = logs.shape
    i, j = np.nonzero(read)
    offset = j - (i + keys - queries)
    shifted, seen = np.zeros((queries, queries + keys)), np.zeros((queries, queries + keys), bool)
    shifted[i, offset + keys - 1], seen[i, offset + keys - 1] = logs[i, j], True
    level = _columns(shifted, seen, tolerance)
    if level is not None:
        at = np.flatnonzero(seen.any(axis=0))
        return _linear(at - (keys - 1), level[at], tolerance)
    return ("by pair" if _columns(logs, read, tolerance) is None else "by key"), None


def _columns(logs: np.ndarray, read: np.ndarray, tolerance: float) -> np.ndarray | None:
    """The numbers of the columns, if each log-weight is a number of its row plus one of its column.

    Rows that read a common column fix each other's numbers; a walk over them fixes all, then each is checked.
    """
    row, column = np.full(logs.shape[0], np.nan), np.full(logs.shape[1], np.nan)
    for start in range(len(row)):
        waiting = [start] if np.isnan(row[start]) else []
        row[start] = 0.0 if waiting else row[start]
        while waiting:
            i = waiting.pop()
            fresh = read[i] & np.isnan(column)
            column[fresh] = logs[i, fresh] - row[i]
            for k in np.flatnonzero(np.isnan(row) & read[:, fresh].any(axis=1)).tolist():
                j = int(np.flatnonzero(read[k] & fresh)[0])
                row[k] = logs[k, j] - column[j]
                waiting.append(k)
    level = np.nan_to_num(column)
    apart = np.abs(logs - row[:, None] - level[None, :])[read]
    return level if (apart <= 2 * tolerance).all() else None


def _linear(offsets: np.ndarray, level: np.ndarray, tolerance: float) -> tuple[str, float | None]:
    """ALiBi when the level is a constant minus slope times |offset|."""
    distance = np.abs(offsets).astype(np.float64)
    spread = distance - distance.mean() if distance.size else distance
    if not (spread**2).sum():
        return ("ALiBi", 0.0) if offsets.size < 2 else ("Toeplitz", None)
    slope = -float((spread * (level - level.mean())).sum() / (spread**2).sum())
    rest = level + slope * distance
    return ("ALiBi", slope) if np.ptp(rest) <= 4 * tolerance else ("Toeplitz", None)


def _agrees(logs: np.ndarray, read: np.ndarray, alpha: np.ndarray) -> bool:
    """Whether the kernel's weights at equal scores are the softmax of the log-weights."""
    power = np.where(read, np.exp(logs), 0.0)
    total = power.sum(axis=-1, keepdims=True)
    expected = np.divide(power, total, out=np.zeros_like(power), where=total > 0)
    filled = read.any(axis=-1, keepdims=True)
    return bool((np.abs(np.where(filled, alpha - expected, 0.0)) <= 1e-2).all())
