"""The flow witness: the model as a black box. Change one position; every output bit that moves depends on it.

Equality is bit for bit, between runs of equal shapes with equal random states; the batch is always the given
one. Rounding is reported apart: see `erlangen.audit.witnesses.rounding`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from erlangen.audit.arguments.reading import read
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.outputs import Place, floating
from erlangen.audit.state import untouched
from erlangen.audit.witnesses.rounding import Changes, differs, roundings, rows_like, spread
from erlangen.audit.witnesses.runs import Mode, Runner
from erlangen.errors import DataError
from erlangen.relations import Neighborhoods

LEAST = 4
"""A flow is measured at so many positions at least."""
FEWEST = 2
"""At so many, where time ends before."""


@dataclass(frozen=True, eq=False)
class Flow:
    """What the rows of one output depend on: `relations[b]` relates the rows of item b to positions."""

    content: str
    relations: tuple[Neighborhoods, ...]
    rounding: tuple[Neighborhoods, ...]
    """Dependences at the level of rounding only, disjoint from `relations`."""
    batch_leak: tuple[int, int] | None
    """(item changed, item that moved), when a sequence depends on another one of its batch."""
    runs: int
    pooled: bool
    """The output has one row for each sequence."""
    output: str = ""
    """The name of the output."""
    positions: tuple[int, ...] | None = None
    """The positions that were changed; None when all were."""
    sizes: np.ndarray | None = None
    """How much each row moves with each position, relative to the output's largest entry: (batch, rows,
    n)."""
    features: int = 1
    """How many numbers a row has."""
    whole_batch: bool = False
    """Whether the output has no items of its own, as a loss: one number for the whole batch."""
    leak_size: float | None = None
    """The size of the largest change between items of a batch."""

    @property
    def complete(self) -> bool:
        """Whether every position was changed."""
        return self.positions is None

    @property
    def columns(self) -> np.ndarray:
        """The positions that were changed."""
        return np.arange(self.relations[0].keys) if self.positions is None else np.asarray(self.positions)

    @property
    def largest(self) -> np.ndarray | None:
        """How much each row moves with each position in the item where it moves most: (rows, n)."""
        return None if self.sizes is None else np.nan_to_num(self.sizes, posinf=1e300).max(axis=0)


def flow(
    model: nn.Module,
    inputs: Inputs,
    content: Content | None = None,
    *,
    observed: bool = False,
    mode: Mode | None = None,
) -> Flow:
    """Which rows of the first output with rows depend on which positions of one input: n runs.

    `observed` runs under an idle function mode: PyTorch then leaves its fast paths, as under any observer.
    The model runs in the mode it is in, unless another is given.

    >>> scan = nn.GRU(2, 2, batch_first=True)
    >>> flow(scan, Inputs.of(torch.zeros(1, 3, 2))).relations[0].dense().astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    reading = read(model, inputs)
    content = reading.contents[0] if content is None else content
    mode = mode or Mode("as it is", train=model.training)
    with untouched(model) as snapshot:
        return measure(Runner(model, inputs, reading, snapshot, mode, observed=observed), content)[0]


def _places(runner: Runner) -> list[Place]:
    made = runner.places()
    if not made:
        raise DataError("the model returns no floating point tensor, so nothing flows that could be measured")
    return made


def measure(runner: Runner, content: Content, positions: list[int] | None = None) -> list[Flow]:
    """The flow from one input to every floating output, those with rows first.

    `positions` are the positions to change, all of them by default; where the runner's time ends before,
    those that were changed until then stand in the flow. A model whose output changes from run to run is
    refused: what moves by itself depends on nothing that could be told.
    """
    base, again, n = runner.base(), runner.again(), content.length
    outputs = [Changes.none(place, place.rows(base), n) for place in _places(runner)]
    for place, rows in ((one.place, one.base) for one in outputs):
        if differs(place.rows(again), rows)[0].any():
            raise DataError(
                f"two runs on the same inputs differ in {place.name or 'the output'}: what moves by itself "
                "depends on nothing that could be told; fix the model's random generators"
            )
    chosen = list(range(n)) if positions is None else sorted(set(positions))
    done: list[int] = []
    for j in spread(chosen):
        if len(done) >= FEWEST and runner.late:
            break
        done.append(j)
        output = runner.changed(content, j)
        for one in outputs:
            one.add(j, rows_like(one.place, output, one.base))
    leaks = batch_leaks(runner, content, [one.place for one in outputs], base)
    rounded, untold = roundings(runner, content, outputs, sorted(done))
    told = sorted(set(done) - untold)
    if done and not told:
        raise DataError("there was no time to tell rounding from dependence: give a larger budget")
    flows = []
    for one, rounding, leak in zip(outputs, rounded, leaks, strict=True):
        for part in (one.moved, rounding, one.sizes):
            part[:, :, list(untold)] = 0
        flows.append(
            Flow(
                content.name,
                tuple(Neighborhoods.from_dense(item) for item in one.moved & ~rounding),
                tuple(Neighborhoods.from_dense(item) for item in rounding),
                None if leak is None else leak[:2],
                runner.runs,
                one.place.pooled,
                one.place.name,
                None if len(told) == n else tuple(told),
                one.sizes / one.scale,
                one.base.shape[-1],
                one.place.batch_axis is None,
                None if leak is None else leak[2],
            )
        )
    return flows


ITEMS = 64
"""So many items of a batch are changed, each by itself, to see whether another one moves."""


def batch_leaks(
    runner: Runner, content: Content, found: list[Place], base: object
) -> list[tuple[int, int, float] | None]:
    """For every output: (item changed, item that moved, how much), when one item of a batch moves another.

    What is as small as rounding is told from it as everywhere: by runs in another precision.
    """
    leaks: list[tuple[int, int, float] | None] = [None] * len(found)
    if content.batch < 2:
        return leaks
    views = [(k, *view) for k, place in enumerate(found) for view in _views(place, found, content.batch)]
    count, every = min(content.batch, ITEMS), range(content.length)
    outputs = [Changes.none(place, place.rows(base), count) for _, place, _ in views]
    done: list[int] = []
    for item in range(count):
        if item > 1 and runner.late:
            break
        done.append(item)
        output = runner.first_item(content) if item == 0 else runner.changed(content, every, item)
        for one, (_, place, owner) in zip(outputs, views, strict=True):
            one.add(item, place.rows(output), _own_rows(place, owner, item, one.moved.shape[:2]))
    if not any((one.moved & np.isfinite(one.parts)).any() for one in outputs):
        return leaks
    rounded, _ = roundings(runner, content, outputs, done, items=True)
    for number in range(len(found)):
        mine = [k for k, (of, _, _) in enumerate(views) if of == number]
        for item in done:
            real = [
                (outputs[k].moved & ~rounded[k])[:, :, item]
                & ~_own_rows(views[k][1], views[k][2], item, rounded[k].shape[:2])
                for k in mine
            ]
            if leaks[number] is None and mine and all(one.any() for one in real):
                first, owner = mine[0], views[mine[0]][2]
                other = int(real[0].any(axis=1).argmax()) if owner is None else owner
                leaks[number] = item, other, float(outputs[first].parts[:, :, item][real[0]].max())
    return leaks


def _views(place: Place, found: list[Place], batch: int) -> list[tuple[Place, int | None]]:
    """How the rows of an output may belong to items, and of which item all are: only what moves in every view
    is a leak. One axis of items times rows may hold either first, and a tuple of as many outputs as items may
    also hold items times rows, each."""
    owner = _owner(place, found, batch)
    if place.batch_axis is None and owner is None:
        return []
    views: list[tuple[Place, int | None]] = [(_PairsOfItems(**vars(place)) if place.pairs else place, None)]
    if place.folded is not None and not place.pairs:
        views = [(replace(place, folded=one), None) for one in ("items first", "items last")]
    return views if owner is None else [(place, owner), *views]


class _PairsOfItems(Place):
    """An output with an entry for each pair of items: the rows of an item are all its pairs."""

    def rows(self, output: object) -> torch.Tensor:
        tensor = dict(floating(output))[self.name].detach()
        return tensor.reshape(*tensor.shape[:2], -1)


def _own_rows(place: Place, owner: int | None, item: int, shape: tuple[int, ...]) -> np.ndarray:
    """The rows that may move with an item."""
    own = np.zeros(shape, bool)
    if owner is not None:
        own[:] = owner == item
        return own
    own[item : item + 1] = True
    if place.pairs:
        own[:, item] = True
    return own


def _owner(place: Place, found: list[Place], batch: int) -> int | None:
    """The item that an output is of, where a list holds one tensor for each item; None elsewhere."""
    stem, _, number = place.name.rpartition(".")
    alike = [one for one in found if one.name.rpartition(".")[0] == stem]
    each = place.folded is not None and number.isdigit() and len(alike) == batch
    return int(number) if each and int(number) < batch else None
