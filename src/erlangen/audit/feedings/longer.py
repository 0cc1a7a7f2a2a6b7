"""Longer inputs, beyond the sizes that the model itself names: windows, chunks, blocks, strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from erlangen.audit.arguments.code_sizes import possible_sizes
from erlangen.audit.arguments.resized import stretchable, stretched
from erlangen.audit.arguments.sizes import named_sizes
from erlangen.audit.feeding import Feeding, Given, Way, register
from erlangen.audit.inputs import Content

MOST = 640
"""No longer input is made than this."""


FULL = 256
"""Tables of positions up to this size are filled."""
TRIES = 4
"""So many lengths are tried until the model takes one, for sizes that are none by their names."""


SAID = 4
"""So many integers that may be lengths are named."""


@register
class Longer(Way):
    """One input for each named size that the given length does not cross, as long as the model takes it; one
    for all integers that may be lengths, beyond the largest that it takes; one that fills a table."""

    name = "longer"
    order = 110
    long = True

    def untried(self, model: nn.Module, made: bool, longest: int) -> str | None:
        return _uncrossed(model, longest) or None

    def make(self, given: Given) -> Iterator[Feeding]:
        content = stretchable(given)
        if content is None:
            return
        tried = set()
        for _, size in named_sizes(given.model):
            length = 2 * size + 3
            if content.length > 2 * size or length > MOST or length in tried:
                continue
            tried.add(length)
            yield _longer(given, content, length, (size, 2 * size))
        waiting = [size for _, size in possible_sizes(given.model) if 2 * size >= content.length]
        waiting = [size for size in waiting if 2 * size + 3 <= MOST]
        for length, size in _lengths(waiting, content.length):
            feeding = _longer(given, content, length, tuple(one for one in waiting if one <= size))
            if given.runs(feeding.inputs):
                if length not in tried:
                    yield feeding
                tried.add(length)
                break
        beyond = max(tried, default=content.length)
        for size in [size for size in _longest(given, content) if size > beyond][:TRIES]:
            feeding = _longer(given, content, size, ())
            if given.runs(feeding.inputs):
                yield replace(feeding, exact=False)  # what fades on the way is not missing
                return


def _longest(given: Given, content: Content) -> list[int]:
    """The sizes of tables of embeddings, the largest first, but for that of the tokens: a table of positions
    takes nothing beyond."""
    tables = {one.num_embeddings for one in given.model.modules() if isinstance(one, nn.Embedding)}
    tokens = 0 if content.pool is None else int(content.pool.max()) + 1
    return sorted((one for one in tables if content.length < one <= FULL and one != tokens), reverse=True)


def _lengths(sizes: list[int], given: int) -> list[tuple[int, int]]:
    """Lengths to be tried, from the largest size down: twice beyond it, then just beyond it."""
    found = [(2 * size + 3, size) for size in sizes] + [(size + 3, size) for size in sizes]
    found = [one for one in found if one[0] > given]
    return (
        [found[round(k * (len(found) - 1) / (TRIES - 1))] for k in range(TRIES)]
        if len(found) > TRIES
        else found
    )


def _longer(given: Given, content: Content, length: int, at: tuple[int, ...]) -> Feeding:
    inputs = stretched(given, content, length)
    return given.feeding(f"longer ({length})", inputs, resized=True, at=at)


def _uncrossed(model: nn.Module, longest: int) -> str:
    """The integers that may be lengths and that no input crossed; empty without one. No input crosses the
    size of a table of embeddings: one may be as long."""
    named = {size for _, size in named_sizes(model)}
    tables = {one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)}
    found = [
        f"{name} = {size}"
        for name, size in reversed(possible_sizes(model))
        if longest and size >= longest + (size in tables) and size not in named
    ]
    if not found:
        return ""
    more = f" and {len(found) - SAID} more" if len(found) > SAID else ""
    return f"beyond {', '.join(found[:SAID])}{more}: if that is a length, give longer inputs"
