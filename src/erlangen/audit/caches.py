"""Caches that are given to a model: each run appends to a copy, so that all runs begin with the same keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch

from erlangen.audit.holdings import has_attributes

DEPTH = 6
"""Caches are looked into this deep."""


def is_cache(value: Any) -> bool:
    """Whether it is an object that holds the states of earlier steps, by the name of its class."""
    return "Cache" in type(value).__name__ and not isinstance(value, torch.nn.Module | type)


def fresh(value: Any) -> Any:
    """A copy of a cache, and of a container that a model may fill; anything else as it is.

    >>> cache = {}
    >>> fresh(cache) is cache, fresh(cache)
    (False, {})
    """
    if not (is_cache(value) or type(value) in (list, dict, set)):
        return value
    copies: dict[int, Any] = {}
    for part in _parts(value):
        if isinstance(part, torch.Tensor):  # one with a gradient's history cannot be copied by itself
            copies[id(part)] = part.detach().clone()
        elif type(part).__name__.endswith("Config") or isinstance(part, torch.nn.Module):
            copies[id(part)] = part
    try:
        return deepcopy(value, copies)
    except Exception:
        return value  # what moves by itself is then said


def holds_keys(name: str, value: Any) -> bool:
    """Whether an input is a cache with keys of positions before the given ones.

    >>> holds_keys("past_key_values", [(torch.zeros(1, 2, 5, 4),) * 2]), holds_keys("past_key_values", None)
    (True, False)
    """
    if value is None or not (is_cache(value) or "past_key" in name or "cache" in name):
        return False
    length = getattr(value, "get_seq_length", None)
    if callable(length):
        return bool(length())
    return any(isinstance(part, torch.Tensor) and part.numel() for part in _parts(value))


def _parts(value: Any, depth: int = 0) -> Iterator[Any]:
    """The value and everything inside it."""
    yield value
    if depth >= DEPTH or isinstance(value, torch.Tensor | torch.nn.Module | str | bytes):
        return
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple | set):
        inside = list(value)
    else:
        inside = list(getattr(value, "__dict__", {}).values()) if has_attributes(value) else []
    for part in inside:
        yield from _parts(part, depth + 1)
