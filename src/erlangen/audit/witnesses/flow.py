"""The flow witness: the model as a black box. Change one position; every output bit that moves depends on it.

Equality is bit for bit, between runs of equal shapes with equal random states; the batch is always the given
one. A change as small as rounding (a mixture of experts groups tokens by expert, and other groups round
otherwise) is run again in another precision: a real dependence stays as large, rounding does not. Rounding is
reported apart, and nothing larger than a few units in the last place is ever excused as rounding, nor than
a few times what such units of all weights and inputs do to the output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from erlangen.audit.closeness import AT_MOST, nudged
from erlangen.audit.inputs import Content, Inputs
from erlangen.audit.outputs import Place, floating
from erlangen.audit.reading import read
from erlangen.audit.state import untouched
from erlangen.audit.witnesses.double import copied, in_precision
from erlangen.audit.witnesses.runs import Mode, Runner
from erlangen.errors import DataError
from erlangen.relations import Neighborhoods

ULPS = 32
"""Changes above this many units in the last place of the output's size are never rounding."""
LOW_ULPS = 8
"""The same under autocast, of bfloat16: so that a sixteenth of the output's size is never rounding."""
SMALL_IN_DOUBLE = 1e-11
"""The part of the output's size below which a model in double precision is suspected of rounding."""
CHUNK = 1 << 20
"""Entries that are compared at a time."""
LEAST = 4
"""A flow is measured at so many positions at least."""
FEWEST = 2
"""At so many, where time ends before."""
NUDGES = 16
"""Rounding is at most so many times what one unit in the last place of every weight and input does."""
SHRINKS = 1e-3
"""A change that shrinks below this part of itself in double precision was rounding."""


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


def suffix_flow(
    model: nn.Module, inputs: Inputs, content: Content | None = None
) -> list[tuple[int, int, int]]:
    """Rows that read the future: change all positions from j on, and rows before j must not move.

    Returns (item, row, j) for every row that did; an empty list settles causality in n runs.

    >>> suffix_flow(nn.GRU(2, 2, batch_first=True), Inputs.of(torch.zeros(1, 3, 2)))
    []
    """
    reading = read(model, inputs)
    content = reading.contents[0] if content is None else content
    with untouched(model) as snapshot:
        runner = Runner(model, inputs, reading, snapshot, Mode("as it is", train=model.training))
        place, *_ = _places(runner)
        base, moved = place.rows(runner.base()), []
        for j in range(1, content.length):
            rows = place.rows(runner.changed(content, range(j, content.length)))
            changed = differs(rows, base)[0].numpy()
            moved += [(int(b), int(i), j) for b, i in np.argwhere(changed) if i < j]
    return moved


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
    base_output = runner.base()
    found = _places(runner)
    base = [place.rows(base_output) for place in found]
    again = runner.again()
    for place, rows in zip(found, base, strict=True):
        if differs(place.rows(again), rows)[0].any():
            raise DataError(
                f"two runs on the same inputs differ in {place.name or 'the output'}: what moves by itself "
                "depends on nothing that could be told; fix the model's random generators"
            )
    n = content.length
    chosen = list(range(n)) if positions is None else sorted(set(positions))
    usual = [usual_sizes(rows) for rows in base]
    moved = [np.zeros((*rows.shape[:2], n), bool) for rows in base]
    sizes = [np.zeros((*rows.shape[:2], n)) for rows in base]
    parts = [np.zeros((*rows.shape[:2], n)) for rows in base]
    done: list[int] = []
    for j in spread(chosen):
        if len(done) >= FEWEST and runner.late:
            break
        done.append(j)
        output = runner.changed(content, j)
        for k, place in enumerate(found):
            rows = _rows_like(place, output, base[k])
            moved[k][:, :, j], sizes[k][:, :, j] = (part.numpy() for part in differs(rows, base[k]))
            parts[k][:, :, j] = part_of(usual[k], rows, base[k], sizes[k][:, :, j])
    leaks = batch_leaks(runner, content, found, base_output)
    roundings, untold = _rounding(runner, content, found, base, moved, sizes, parts, sorted(done))
    told = sorted(set(done) - untold)
    if done and not told:
        raise DataError("there was no time to tell rounding from dependence: give a larger budget")
    flows = []
    for k, place in enumerate(found):
        scale, rounding, leak = _scale(base[k]), roundings[k], leaks[k]
        for part in (moved[k], rounding, sizes[k]):
            part[:, :, list(untold)] = 0
        flows.append(
            Flow(
                content.name,
                tuple(Neighborhoods.from_dense(item) for item in moved[k] & ~rounding),
                tuple(Neighborhoods.from_dense(item) for item in rounding),
                None if leak is None else leak[:2],
                runner.runs,
                place.pooled,
                place.name,
                None if len(told) == n else tuple(told),
                sizes[k] / scale,
                base[k].shape[-1],
                place.batch_axis is None,
                None if leak is None else leak[2],
            )
        )
    return flows


def spread(positions: list[int]) -> list[int]:
    """The positions in an order whose every beginning is spread over them: whoever stops early has seen all
    parts.

    >>> spread([0, 1, 2, 3, 4])
    [0, 4, 2, 1, 3]
    """
    if len(positions) < 3:
        return list(positions)
    found, waiting = [positions[0], positions[-1]], deque([(0, len(positions) - 1)])
    while waiting:
        first, last = waiting.popleft()
        middle = (first + last) // 2
        if middle in (first, last):
            continue
        found.append(positions[middle])
        waiting += [(first, middle), (middle, last)]
    return found


def _rows_like(place: Place, output: object, base: torch.Tensor) -> torch.Tensor:
    try:
        rows = place.rows(output)
    except KeyError:
        rows = None
    if rows is None or rows.shape != base.shape:
        raise DataError(
            f"changing the content changes the shape of {place.name or 'the output'}: rows cannot be compared"
        )
    return rows


def _scale(rows: torch.Tensor) -> float:
    return float(rows.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()) or 1.0


def usual_sizes(rows: torch.Tensor) -> torch.Tensor:
    """The size by which changes of each feature are judged: its own largest entry, at least the middle one of
    all features.

    One banned logit of -1e4 must not excuse the others, and is itself known to so many places only.
    """
    columns = rows.detach().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().amax((0, 1)).double()
    middle = float(columns.median()) or float(columns.max()) or 1.0
    return columns.clamp(min=middle)


def part_of(
    usual: torch.Tensor, rows: torch.Tensor, base: torch.Tensor, sizes: np.ndarray | None = None
) -> np.ndarray:
    """How much each row moved at most, as a part of the usual size of the feature that moves.

    `sizes` is how much it moved, where that is known.
    """
    sizes = differs(rows, base)[1].numpy() if sizes is None else sizes
    most = float(usual.max())
    if most <= 2 * float(usual.min()) or not sizes.any():
        return sizes / most
    divided = (part.double() / usual.to(part.device) for part in (rows, base))
    return differs(*divided)[1].numpy()


def differs(rows: torch.Tensor, base: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each row: did any bit move, and by how much at most."""
    moved = torch.zeros(rows.shape[:-1], dtype=torch.bool, device="cpu")
    size = torch.zeros(rows.shape[:-1], dtype=torch.float64, device="cpu")
    if rows.shape[-1] == 0:
        return moved, size
    # A row of logits may have 200,000 entries: a few rows at a time stay in cache.
    step = max(1, CHUNK // max(rows.shape[0] * rows.shape[-1], 1))
    for start in range(0, rows.shape[1], step):
        a, b = rows[:, start : start + step], base[:, start : start + step]
        unlike = a != b
        if not bool(unlike.any()):
            continue
        unlike &= ~(a.isnan() & b.isnan())
        apart = torch.where(unlike, (a - b).abs().nan_to_num(nan=float("inf")), 0.0)
        moved[:, start : start + step] = unlike.any(-1).cpu()
        size[:, start : start + step] = apart.amax(-1).double().cpu()
    return moved, size


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
    places = [place for _, place, _ in views]
    rows = [place.rows(base) for place in places]
    count, every = min(content.batch, ITEMS), range(content.length)
    moved = [np.zeros((*one.shape[:2], count), bool) for one in rows]
    sizes, parts = ([np.zeros(one.shape) for one in moved] for _ in range(2))
    done: list[int] = []
    for item in range(count):
        if item > 1 and runner.late:
            break
        done.append(item)
        output = runner.first_item(content) if item == 0 else runner.changed(content, every, item)
        for k, (_, place, owner) in enumerate(views):
            now = place.rows(output)
            bits, size = (part.numpy() for part in differs(now, rows[k]))
            own = _own_rows(place, owner, item, bits.shape)
            # What may move is no rounding, however small it is, and says nothing about rounding.
            moved[k][:, :, item], sizes[k][:, :, item] = bits | own, np.where(own, np.inf, size)
            part = part_of(usual_sizes(rows[k]), now, rows[k], size)
            parts[k][:, :, item] = np.where(own, np.inf, part)
    if not any((one & np.isfinite(size)).any() for one, size in zip(moved, parts, strict=True)):
        return leaks
    roundings, _ = _rounding(runner, content, places, rows, moved, sizes, parts, done, items=True)
    for number in range(len(found)):
        mine = [k for k, (of, _, _) in enumerate(views) if of == number]
        for item in done:
            real = [
                (moved[k] & ~roundings[k])[:, :, item]
                & ~_own_rows(views[k][1], views[k][2], item, moved[k].shape[:2])
                for k in mine
            ]
            if leaks[number] is None and mine and all(one.any() for one in real):
                first, owner = mine[0], views[mine[0]][2]
                other = int(real[0].any(axis=1).argmax()) if owner is None else owner
                leaks[number] = item, other, float(parts[first][:, :, item][real[0]].max())
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


# ----------------------------------------------------------------------------------- rounding


def _rounding(
    runner: Runner,
    content: Content,
    found: list[Place],
    base: list[torch.Tensor],
    moved: list[np.ndarray],
    sizes: list[np.ndarray],
    parts: list[np.ndarray],
    done: list[int],
    items: bool = False,
) -> tuple[list[np.ndarray], set[int]]:
    """Which of the changes are rounding, for every output; and positions that there was no time to tell of.

    With `items` the changes are of whole items of the batch, in place of positions.
    """
    suspects = []
    grown = _grown(runner, found, base, moved, sizes)
    for k, rows in enumerate(base):
        limit = SMALL_IN_DOUBLE if rows.dtype == torch.float64 else ULPS * torch.finfo(rows.dtype).eps
        # Rounded inside to bfloat16; autocast leaves a model in double as it is.
        if runner.mode.autocast and (rows.dtype != torch.float64 or found[k].discrete):
            limit = LOW_ULPS * torch.finfo(torch.bfloat16).eps
        suspects.append(moved[k] & ((parts[k] <= limit) | (sizes[k] <= grown[k])))
    result, untold = [np.zeros_like(one) for one in suspects], set[int]()
    for dtype in (torch.float64, torch.float32):  # those in double are run in single precision
        mine = [
            k
            for k, one in enumerate(suspects)
            if one.any() and (base[k].dtype == torch.float64) != (dtype == torch.float64)
        ]
        if not mine:
            continue
        again = changes_in(runner, content, [found[k] for k in mine], dtype, items)
        if again is None:
            for k in mine:
                result[k] = suspects[k] & (sizes[k] <= 16 * _noise(runner, found[k], base[k]))
            continue
        others = {k: np.zeros_like(sizes[k]) for k in mine}
        columns = np.any([suspects[k].any(axis=(0, 1)) for k in mine], axis=0)
        wanted = done if dtype == torch.float32 else np.flatnonzero(columns).tolist()
        for number, j in enumerate(spread(wanted)):
            if number >= FEWEST and runner.late:
                untold |= {one for one in wanted if columns[one]} - set(spread(wanted)[:number])
                break
            for k, change in zip(mine, again(j), strict=True):
                others[k][:, :, j] = change
        for k in mine:
            suspect, size, other = suspects[k], sizes[k], others[k]
            if (
                dtype == torch.float32
            ):  # a bit may stay by chance: the largest change says how rounding has grown
                least = SHRINKS * float(other[suspect | ~moved[k]].max())
                result[k] = suspect & (size <= max(least, torch.finfo(torch.float64).eps * _scale(base[k])))
            else:
                result[k] = suspect & (other <= SHRINKS * size)
    _rounded_inside(runner, content, found, base, moved, sizes, result, items)
    return result, untold


def _grown(
    runner: Runner,
    found: list[Place],
    base: list[torch.Tensor],
    moved: list[np.ndarray],
    sizes: list[np.ndarray],
) -> list[float]:
    """How large rounding may have become on its way to each output, by the model's own numbers.

    Sums that nearly cancel leave outputs that are small beside what was rounded. One unit in the last place
    of every weight and input then moves the outputs by more than their own last places.
    """
    limits = [
        (ULPS * eps * _scale(rows), AT_MOST * eps * _scale(rows))
        for rows in base
        for eps in [torch.finfo(rows.dtype).eps]
    ]
    between = [
        rows.dtype == torch.float32 and bool((moved[k] & (sizes[k] > low) & (sizes[k] <= high)).any())
        for k, (rows, (low, high)) in enumerate(zip(base, limits, strict=True))
    ]
    nudge = nudged(runner.model, runner.inputs) if any(between) and runner.inputs.vary is None else None
    if nudge is None:
        return [0.0] * len(base)
    try:
        output = runner.on(nudge[1], model=nudge[0])
        apart = [
            float(differs(_rows_like(p, output, b), b)[1].max()) for p, b in zip(found, base, strict=True)
        ]
    except Exception:
        return [0.0] * len(base)  # content that must stay what it is
    return [
        min(NUDGES * size, high) if asked else 0.0
        for size, asked, (_, high) in zip(apart, between, limits, strict=True)
    ]


def _rounded_inside(
    runner: Runner,
    content: Content,
    found: list[Place],
    base: list[torch.Tensor],
    moved: list[np.ndarray],
    sizes: list[np.ndarray],
    result: list[np.ndarray],
    items: bool,
) -> None:
    """Outputs in double precision of a model that rounds to single precision inside: run without its casts,
    what was rounding shrinks."""
    suspects = {
        k: moved[k] & ~result[k] & (sizes[k] <= ULPS * torch.finfo(torch.float32).eps * _scale(rows))
        for k, rows in enumerate(base)
        if rows.dtype == torch.float64 and not found[k].discrete
    }
    mine = [k for k, one in suspects.items() if one.any()]
    again = changes_in(runner, content, [found[k] for k in mine], torch.float64, items) if mine else None
    if again is None or not any(float(one.max()) for one in again(None, [base[k] for k in mine])):
        return  # nothing is rounded inside
    for j in np.flatnonzero(np.any([suspects[k].any(axis=(0, 1)) for k in mine], axis=0)).tolist():
        if runner.late:
            return
        for k, change in zip(mine, again(j), strict=True):
            result[k][:, :, j] |= suspects[k][:, :, j] & (change <= SHRINKS * sizes[k][:, :, j])


def _noise(runner: Runner, place: Place, base: torch.Tensor) -> float:
    """How much the output moves when only the order of summation does: the batch run twice over."""
    batch = runner.reading.batch
    axes = {id(one.tensor): one.batch_axis for one in (*runner.reading.contents, *runner.reading.labels)}

    def twice(tensor: torch.Tensor) -> torch.Tensor:
        axis = axes.get(id(tensor), 0)
        if axis is None or tensor.dim() <= axis or tensor.shape[axis] != batch:
            return tensor
        return torch.cat([tensor, tensor], dim=axis)

    try:
        doubled = replace(place, items=2 * batch).rows(runner.on(runner.inputs.map(twice)))
    except Exception:
        return 0.0  # no other shape runs, so nothing is excused as rounding
    if doubled.shape[0] < len(base) or doubled.shape[1:] != base.shape[1:]:
        return 0.0
    return float((doubled[: len(base)].double() - base.double()).abs().nan_to_num().max())


def changes_in(
    runner: Runner, content: Content, found: list[Place], dtype: torch.dtype, items: bool = False
) -> Callable[..., list[np.ndarray]] | None:
    """The changes of some outputs caused by position j, or by several, in another precision, against the run
    without a change or other rows; None when the model has no such copy. With `items` j is an item of the
    batch, changed throughout."""
    try:
        model = copied(runner.model, dtype)
    except Exception:
        return None  # modules that cannot be copied
    base: list[torch.Tensor] = []
    casts = dtype == torch.float64  # first without the model's own casts, where it runs so
    while not base:
        casts = not casts
        try:
            output = runner.changed(content, [], model=model, recast=dtype, within=in_precision(dtype, casts))
            base = [place.rows(output).clone() for place in found]
        except Exception:
            if casts:
                return None  # kernels without this type

    def change(
        j: int | Sequence[int] | None, than: list[torch.Tensor] = base, item: int | None = None
    ) -> list[np.ndarray]:
        at: int | Sequence[int] = [] if j is None else j
        if items and isinstance(at, int):
            at, item = range(content.length), at
        output = runner.changed(
            content, at, item, model=model, recast=dtype, within=in_precision(dtype, casts)
        )
        return [differs(place.rows(output), rows)[1].numpy() for place, rows in zip(found, than, strict=True)]

    return change
