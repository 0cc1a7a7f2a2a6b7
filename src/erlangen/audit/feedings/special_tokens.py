"""Tokens that the model itself names, and the ends of its vocabulary, among the given ones.

A future end of sequence that everybody reads, positions counted from tokens that are no padding: such faults
show with one token alone, which ordinary content does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.embedding import embedding_of
from erlangen.audit.arguments.sizes import named_tokens
from erlangen.audit.feeding import FEW, Feeding, Given, Way, register
from erlangen.audit.inputs import Content, Inputs, with_content
from erlangen.audit.outputs import output_tensors

MOST = 6
"""So many tokens are put in."""
LEAST = 6
"""Sequences of fewer positions have no room for them."""


@register
class SpecialTokens(Way):
    """The given tokens with special ones among them; what may be padding stands at the end.

    A model may read less where such a token stands (documents end, padding is hidden), never more.
    """

    name = "special tokens"
    order = 50
    runs = 8

    def make(self, given: Given) -> Iterator[Feeding]:
        inputs, places = given.inputs, list[int]()
        for content in given.reading.contents if inputs.vary is None else ():
            fits = content.pool is not None and content.sequence and content.embedding is None
            if not fits or content.together or content.length < LEAST:
                continue
            tokens = _tokens(given, content)
            put = _put(content, tokens)
            if not _taken(given, inputs, content, put):  # a token may stand for an image that is not there
                tokens = [one for one in tokens if _taken(given, inputs, content, _put(content, [one]))]
                put = _put(content, tokens)
                if not _taken(given, inputs, content, put):
                    continue
            places += put
            inputs = with_content(inputs, content, _with(content, put))
        if places:
            at = tuple(dict.fromkeys(places))
            yield given.feeding(
                "special tokens",
                inputs,
                exact=False,
                at_most=True,
                other_content=True,
                spread=FEW + MOST,
                at=at,
            )


def _tokens(given: Given, content: Content) -> list[tuple[int, bool]]:
    """(token, whether it may be padding): those that are named, the first and the last of the vocabulary."""
    name = None if given.on is None else embedding_of(given.model, given.inputs, content, given.on)
    table = None if name is None else given.model.get_submodule(name)
    size = int(content.tensor.max()) + 1
    found: dict[int, bool] = {}
    if isinstance(table, nn.Embedding):
        size = table.num_embeddings
        if table.padding_idx is not None:
            found[table.padding_idx] = True
    for word, number in named_tokens(given.model):
        found[number] = found.get(number, False) or "pad" in word
    found.setdefault(size - 1, False)
    found[0] = True
    return [(token, last) for token, last in found.items() if 0 <= token < size]


def _put(content: Content, tokens: list[tuple[int, bool]]) -> dict[int, int]:
    """Position -> token. The first position stays: before a hidden one nothing could be read."""
    n = content.length
    ends = [token for token, last in tokens if last][: n // 4]
    inner = [token for token, last in tokens if not last][: min(MOST, n // 3)]
    room = n - 2 - len(ends)
    places = {1 + round((k + 1) * room / (len(inner) + 1)): token for k, token in enumerate(inner)}
    return places | {n - 1 - k: token for k, token in enumerate(ends)}


def _with(content: Content, put: dict[int, int]) -> torch.Tensor:
    tensor = content.tensor.clone()
    for place, token in put.items():
        tensor[content.where(place, None)] = token
    return tensor


def _taken(given: Given, inputs: Inputs, content: Content, put: dict[int, int]) -> bool:
    """Whether the model runs with these tokens and without, and returns tensors of the same shapes."""
    if given.on is None or not put:
        return False
    fewer = [put, *({p: t for p, t in put.items() if p != place} for place in put)]
    try:
        shapes = [_shapes(given.on(with_content(inputs, content, _with(content, one)))) for one in fewer]
        return {str(one) for one in shapes} == {str(_shapes(given.on(inputs)))}
    except Exception:
        return False


def _shapes(output: Any) -> list[tuple[str, torch.Size]]:
    return [(name, tensor.shape) for name, tensor in output_tensors(output)]
