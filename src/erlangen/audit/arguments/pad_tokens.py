"""Padding that a model finds by itself, in its tokens: `ids != 0` inside of it.

Such a token is padding only as long as it stands there: another one in its place is read. What stands at a
padding position is therefore changed behind the embedding, and everywhere else by another token.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.embedding import noise_behind
from erlangen.audit.arguments.masks import Mask, says_mask
from erlangen.audit.arguments.reading import Reading
from erlangen.audit.inputs import Content, Inputs, Pad, with_content
from erlangen.audit.outputs import moved_entries

Run = Callable[..., Any]


def pad_tokens(
    model: nn.Module,
    inputs: Inputs,
    found: Reading,
    run: Run,
    embedding_of: Callable[[Content], str | None],
) -> Reading:
    """Take a token for padding where it is declared to be, or ends a sequence, and is seen to be hidden.

    Seen: where it stands no other row moves with what is behind its embedding, and where another token stands
    one does. A model that takes a mask may look at tokens only to find the row that it pools, the last one
    that is no padding: nothing moves then with what stands behind that row, hidden or not. There the token
    must be seen to be hidden at the start of a sequence, too.
    """
    if inputs.vary is not None:
        return found
    used: set[tuple[str, torch.Size]] = set()
    masked = _takes_a_mask(model)
    for number, one in enumerate(found.contents):
        if one.pool is None or (one.axis, one.batch_axis) != (1, 0) or one.tensor.dim() != 2:
            continue
        if one.embedding is not None or one.length < 4 or found.mask(one.name) is not None:
            continue
        for token in _candidates(model, one):
            try:
                name = embedding_of(one)
                # Noise behind an embedding goes to the first tokens of a shape.
                if name is None or (name, one.tensor.shape) in used:
                    break
                padded = replace(one, pad=Pad(token, name))
                if not _hides(model, inputs, padded, run):
                    continue
                if masked and _moved(model, inputs, padded, token, run, start=True):
                    continue
            except Exception:
                break
            used.add((name, one.tensor.shape))
            pool = one.pool[one.pool != token]
            made = replace(one, pad=Pad(token, name), pool=pool if len(pool) > 1 else one.pool)
            found.contents[number] = made
            found.masks.append(Mask(one.name, one.tensor, one.name, False, measured=True, token=token))
            found.notes.append(
                f"{one.name}: the token {token} was read as padding: where it stands no other row reads"
            )
            break
        else:
            if not masked and inputs.content is None:
                _open_where_read(model, inputs, one, found, run, embedding_of)
    return found


def _open_where_read(
    model: nn.Module,
    inputs: Inputs,
    one: Content,
    found: Reading,
    run: Run,
    embedding_of: Callable[[Content], str | None],
) -> None:
    """A token that an embedding declares as padding, that ends a sequence, and that other rows read."""
    for token in _declared(model):
        marked = one.tensor == token
        for item in range(one.batch) if _outside(marked, -1) else ():
            places = marked[item].nonzero().flatten().tolist()
            try:
                name = embedding_of(one) if len(places) > 1 else None
                if name is None or not _read(model, inputs, replace(one, embedding=name), item, places, run):
                    continue
            except Exception:
                return
            found.opened[one.name] = (
                f"the token {token} ends {one.name} and is padding by padding_idx of {name}, yet other rows "
                f"read what stands there: mask it, or say content=[{one.name!r}, ...] if it is no padding"
            )
            return


def _read(model: nn.Module, inputs: Inputs, one: Content, item: int, places: list[int], run: Run) -> bool:
    """Whether other rows move with what stands behind the embedding at some places."""
    found = moved_entries(run(inputs), run(inputs, noise_behind(model, one, places, item, 0)))
    for moved in found.values():
        if moved.dim() > 1 and moved.shape[1] == one.length:
            moved[:, places] = False
    return any(bool(moved.any()) for moved in found.values())


def _declared(model: nn.Module) -> list[int]:
    """The tokens that embeddings declare as padding."""
    found = {module.padding_idx for module in model.modules() if isinstance(module, nn.Embedding)}
    return sorted(token for token in found if token is not None)


def _takes_a_mask(model: nn.Module) -> bool:
    try:
        names = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return False
    return any(says_mask(name) for name in names)


def _candidates(model: nn.Module, one: Content) -> list[int]:
    """Tokens that an embedding declares as padding, and those that end or begin sequences and stand nowhere
    else."""
    largest = int(one.tensor.max())
    found = [token for token in _declared(model) if token <= max(largest, 1)]
    for at, beyond in ((-1, -2), (0, 1)):
        for token in one.tensor[:, at][one.tensor[:, at] == one.tensor[:, beyond]].unique().tolist():
            if token not in found and _outside(one.tensor == token, at):
                found.append(token)
    return found[:3]


def _outside(marked: torch.Tensor, at: int) -> bool:
    """Whether marked entries make one run at the end (or start) of each row, and not the whole of one."""
    runs = marked.long() if at == 0 else marked.long().flip(1)
    return bool((runs.cumprod(1) == runs).all()) and not bool(marked.all(1).any())


def _hides(model: nn.Module, inputs: Inputs, one: Content, run: Run) -> bool:
    """Whether no other row moves with what stands behind the token, and one does behind another token."""
    assert one.pad is not None
    assert one.pool is not None
    others = one.pool[one.pool != one.pad.token]
    if not len(others):
        return False
    padding = _moved(model, inputs, one, one.pad.token, run)
    return not padding and _moved(model, inputs, one, int(others[len(others) // 2]), run)


def _moved(model: nn.Module, inputs: Inputs, one: Content, token: int, run: Run, start: bool = False) -> bool:
    """Whether anything but its own row moves with the last position but one, where this token stands from
    there on; or with the first, where it stands at the start."""
    assert one.pad is not None
    place = 0 if start else one.length - 2
    tensor = one.tensor.clone()
    tensor[:, place : place + 2] = token
    given = with_content(inputs, one, tensor)
    behind = replace(one, tensor=tensor, embedding=one.pad.embedding, pad=None)
    found = moved_entries(run(given), run(given, noise_behind(model, behind, [place], None, 0)))
    for moved in found.values():
        if moved.dim() > 1 and moved.shape[1] == one.length:
            moved[:, slice(0, 2) if start else place].fill_(False)
    return any(bool(moved.any()) for moved in found.values())
