"""Validation of what configurations hold: they may come from a file."""

from __future__ import annotations

from math import isfinite
from numbers import Real
from typing import Any

from erlangen.errors import ParameterError
from erlangen.relations import sizes
from erlangen.relations.protocol import expect


def counts(config: Any, name: str, *fields: str) -> None:
    """Raise unless these fields are whole numbers of at least 1.

    >>> from erlangen.models import GPT
    >>> GPT.Config(vocab_size=11, context=8, layers=0, heads=2, width=8)
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: GPT.Config(layers) must be an integer >= 1, got 0
    """
    for field in fields:
        sizes.count(getattr(config, field), f"{name}.Config({field})", least=1)


def relation(config: Any, name: str) -> None:
    """Raise unless `relation` is one, or one for each head."""
    expect(config.relation, f"{name}.Config(relation) takes a relation or PerHead", axes=("head",))


def fractions(config: Any, name: str) -> None:
    """Raise unless `dropout` is a probability, and `norm_eps`, where there is one, positive and finite.

    >>> from erlangen.models import GPT
    >>> GPT.Config(vocab_size=11, context=8, layers=1, heads=2, width=8, norm_eps=float("nan"))
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: GPT.Config(norm_eps) must be a number > 0 and below 1, got nan
    """
    if not (_number(config.dropout) and 0 <= config.dropout <= 1):
        raise ParameterError(f"{name}.Config(dropout) must be a number from 0 to 1, got {config.dropout!r}")
    epsilon = getattr(config, "norm_eps", 1e-5)
    if not (_number(epsilon) and 0 < epsilon < 1):
        raise ParameterError(f"{name}.Config(norm_eps) must be a number > 0 and below 1, got {epsilon!r}")


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)
