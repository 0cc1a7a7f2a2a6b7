"""Evidence that a separate checker can verify: one claim about a relation, proof or counterexample."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from erlangen.errors import DataError, ParameterError

WORDS = {
    "ascending": lambda n: np.arange(n, dtype=np.int64),
    "descending": lambda n: np.arange(n - 1, -1, -1, dtype=np.int64),
    "path": lambda n: np.arange(-1, n - 1, dtype=np.int64),
    "zeros": lambda n: np.zeros(n, np.int64),
}
"""Arrays that are the same sentence at every n: 0..n-1, n-1..0, -1..n-2, and n zeros."""


MAX_SEARCH = 24
"""The order of a group is certified by its generators up to this many positions: they are searched again."""

MAX_TEXT = 50_000_000
"""Longest JSON of one certificate, in characters."""

_LARGEST = 2**40
"""No number in an array is larger; beyond, arithmetic on arrays could overflow."""


def encode(array: np.ndarray, n: int) -> Any:
    """An integer array as JSON: a word of `WORDS`, a list, or progressions [start, step, count] if shorter.

    Words stand for arrays of length n, the number of positions.

    >>> encode(np.arange(5), n=5), encode(np.array([3, 1, 2]), n=3), encode(np.arange(2), n=3)
    ('ascending', [3, 1, 2], [0, 1])
    >>> encode(np.repeat([0, 1], 50), n=100)
    {'progressions': [[0, 0, 50], [1, 0, 50]]}
    """
    array = np.asarray(array, np.int64)
    for word, make in WORDS.items():
        if array.size == n and np.array_equal(array, make(n)):
            return word
    steps = np.diff(array)
    pieces: list[list[int]] = []
    breaks = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    if breaks.size * 3 < array.size:
        first = 0
        while first < array.size:
            after = int(np.searchsorted(breaks, first, side="right"))
            last = int(breaks[after]) if after < breaks.size else array.size - 1
            step = int(steps[first]) if last > first else 0
            pieces.append([int(array[first]), step, last - first + 1])
            first = last + 1
    return {"progressions": pieces} if pieces and 3 * len(pieces) < array.size else array.tolist()


def decode(value: Any, n: int) -> np.ndarray:
    """The array of length at most n that `encode` wrote; `DataError` for anything else.

    >>> decode("descending", 3)
    array([2, 1, 0])
    >>> decode({"progressions": [[0, 0, 2], [1, 1, 2]]}, 4)
    array([0, 0, 1, 2])
    """
    if isinstance(value, str) and value in WORDS:
        return WORDS[value](n)
    if (
        isinstance(value, Mapping)
        and set(value) == {"progressions"}
        and isinstance(value["progressions"], list)
    ):
        pieces = value["progressions"]
        if all(isinstance(p, list) and len(p) == 3 and all(_small(x) for x in p) for p in pieces):
            if sum(abs(count) for _, _, count in pieces) > n or any(count < 1 for _, _, count in pieces):
                raise DataError(f"the progressions of a certificate describe more than {n} numbers")
            parts = [start + step * np.arange(count, dtype=np.int64) for start, step, count in pieces]
            return np.concatenate([np.empty(0, np.int64), *parts])
    if isinstance(value, list) and all(map(_small, value)) and len(value) <= n:
        return np.array(value, np.int64)
    raise DataError(f"expected at most {n} integers in a certificate, got {shortened(value)}")


def shortened(value: Any) -> str:
    """What was written, cut to a readable length, however long, deep or odd it is.

    >>> shortened([[[[[[[[1]]]]]]]]), shortened({"claim": "total"})
    ('[[[[[[[...]]]]]]]', "{'claim': 'total'}")
    """
    try:
        return _SHORT.repr(value)[:200]
    except (ValueError, RecursionError):  # a number of thousands of digits has no text
        return f"a {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxdict = _SHORT.maxlist = 8
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def _small(number: Any) -> bool:
    return type(number) is int and abs(number) <= _LARGEST


@dataclass(frozen=True)
class Certificate:
    """One claim, whether it holds, and the evidence: a proof object, or a counterexample.

    `claim` is the name of a property (`transitive`), of a kind (`total-order`) or `symmetry`. The claim is
    about a relation on n = `size` positions, or with `every_size` about every n >= `size`. `data` holds
    numbers, words and lists only, so that a certificate is JSON and back.

    >>> certificate = Certificate("symmetric", False, {"present": [1, 0]}, size=3)
    >>> Certificate.from_json(certificate.to_json()) == certificate
    True
    """

    claim: str
    value: bool
    data: Mapping[str, Any] = field(default_factory=dict)
    size: int = 0
    every_size: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The certificate as plain dictionaries and lists."""
        where = {"from_n": self.size} if self.every_size else {"n": self.size}
        return {"claim": self.claim, "value": self.value, **where, "data": dict(self.data)}

    @classmethod
    def from_dict(cls, record: Any) -> Certificate:
        """The certificate `as_dict` wrote; `DataError` for anything else.

        >>> Certificate.from_dict({"claim": "total"})
        Traceback (most recent call last):
        ...
        erlangen.errors.DataError: a certificate has the keys claim, value, n (or from_n) and data, got
        {'claim': 'total'}
        """
        keys = set(record) if isinstance(record, Mapping) else set()
        if keys not in ({"claim", "value", "n", "data"}, {"claim", "value", "from_n", "data"}):
            raise DataError(
                f"a certificate has the keys claim, value, n (or from_n) and data, got {shortened(record)}"
            )
        size = record.get("n", record.get("from_n"))
        if not (isinstance(record["claim"], str) and type(record["value"]) is bool and type(size) is int):
            raise DataError(
                f"a certificate has a text claim, a boolean value and an integer n, got {shortened(record)}"
            )
        if not isinstance(record["data"], Mapping):
            raise DataError(f"the data of a certificate is a mapping, got {shortened(record['data'])}")
        return cls(record["claim"], record["value"], dict(record["data"]), size, "from_n" in keys)

    def to_json(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.as_dict())

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """The certificate that `to_json` wrote.

        >>> Certificate.from_json("{")
        Traceback (most recent call last):
        ...
        erlangen.errors.DataError: a certificate must be JSON, got '{'
        """
        if not isinstance(text, (str, bytes)):
            raise ParameterError(f"Certificate.from_json takes text, got {text!r}")
        if len(text) > MAX_TEXT:
            raise DataError(f"a certificate of {len(text):,} characters; at most {MAX_TEXT:,} are read")
        try:
            record = json.loads(text)
        # Not only text that is no JSON: also bytes that are no text, long numbers, and deep nesting.
        except (ValueError, RecursionError):
            raise DataError(f"a certificate must be JSON, got {text[:80]!r}") from None
        return cls.from_dict(record)


# --------------------------------------------------- its data, exactly as a claim needs it


class Malformed(Exception):
    """The data of a certificate is not what its claim needs."""


def fields_of(data: dict[str, Any], *names: str) -> list[Any]:
    if set(data) != set(names):
        raise Malformed
    return [data[name] for name in names]


def only(data: dict[str, Any], name: str) -> Any:
    return fields_of(data, name)[0]


def position(value: Any, n: int) -> int:
    if type(value) is not int or not 0 <= value < n:
        raise Malformed
    return value


def positions(value: Any, n: int, count: int | None = None) -> list[int]:
    if not isinstance(value, (list, tuple)) or (count is not None and len(value) != count):
        raise Malformed
    return [position(item, n) for item in value]


def array_of(value: Any, n: int, length: int | None = None) -> np.ndarray:
    array = decode(value, n)
    if length is not None and array.size != length:
        raise Malformed
    return array


def places(value: Any, n: int) -> np.ndarray:
    """The place of each position in an order, which must be a permutation."""
    order = array_of(value, n, n)
    if not np.array_equal(np.sort(order), np.arange(n)):
        raise Malformed
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    return place
