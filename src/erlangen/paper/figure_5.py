"""Figure 5: a whole architecture as a picture, what each layer reads from one row of states to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.show.figures import draw_matrix
from erlangen.show.palette import INK, QUIET
from erlangen.show.style import key_color, sheet, write

GAP = 3.0
"""Room between two sequences, in widths of a position."""
LEVEL = 4.0
"""Height of a layer, in widths of a position."""
MOST_INSTANCES = 2
MOST_MATRICES = 3


@dataclass(frozen=True, eq=False)
class Layer:
    """One attention call: its module, `self` or `cross`, and on each instance what it reads."""

    module: str
    between: str
    relations: tuple[str, ...]
    bounds: tuple[Neighborhoods, ...]


@dataclass(eq=False)
class Stack:
    """A sequence and the rows of states that its layers make of it, lowest first."""

    left: float
    length: int
    heights: list[float] = field(default_factory=lambda: [0.0])


def save(title: str, subtitle: str, layers: Sequence[Layer], path: Path) -> None:
    """Draw the layers and write a PNG."""
    write(figure(title, subtitle, layers), [path], dpi=90)


def figure(title: str, subtitle: str, layers: Sequence[Layer]) -> Figure:
    """Layers from the input upwards, an edge from every key that is read to its query, and their matrices.

    A relation that differs between instances is drawn on two of them.

    >>> from erlangen.relations import Causal
    >>> drawn = figure("GPT", "two layers", [Layer("h.0", "self", ("Causal()",), (Causal().on(4),))] * 2)
    >>> [axes.get_title() for axes in drawn.axes]
    ['', 'self: Causal()\\nmatrix: 10 of 16 pairs']
    """
    instances = min(MOST_INSTANCES, max(len(set(layer.bounds)) for layer in layers))
    matrices = _distinct(layers, instances)[:MOST_MATRICES]
    width = sum(_lengths(layers)) + GAP * len(_lengths(layers))
    highest = max(max(stack.heights) for stack in _stacks(layers)[0])
    picture = sheet(
        0.30 * width * instances + 3.4, max(1.25 * highest / LEVEL + 2.2, 2.7 * len(matrices) + 0.9)
    )
    grid = picture.add_gridspec(
        len(matrices), instances + 1, width_ratios=[*([0.30 * width] * instances), 2.8]
    )
    for instance in range(instances):
        axes = picture.add_subplot(grid[:, instance])
        _diagram(axes, layers, instance)
        if instances > 1:
            axes.set_title(f"instance {instance + 1}", fontsize=9, color=INK)
    for place, (heading, bound) in enumerate(matrices):
        draw_matrix(picture.add_subplot(grid[place, instances]), bound, heading)
    picture.suptitle(f"{title}\n{subtitle}", fontsize=11, color=INK, parse_math=False)
    return picture


def _distinct(layers: Sequence[Layer], instances: int) -> list[tuple[str, Neighborhoods]]:
    found: dict[str, Neighborhoods] = {}
    for instance in range(instances):
        for layer in layers:
            place = min(instance, len(layer.bounds) - 1)
            text = layer.relations[place]
            short = text if len(text) <= 40 else f"{text[:37]}..."
            found.setdefault(f"{layer.between}: {short}", layer.bounds[place])
    return list(found.items())


def _lengths(layers: Sequence[Layer]) -> list[int]:
    """The lengths of the sequences, in the order in which they are first read or written."""
    return list(dict.fromkeys(size for layer in layers for size in _ends(layer)))


def _ends(layer: Layer) -> tuple[int, ...]:
    bound = layer.bounds[0]
    return (bound.keys,) if layer.between == "self" else (bound.keys, bound.queries)


def _stacks(layers: Sequence[Layer]) -> tuple[list[Stack], list[tuple[Layer, Stack, Stack, float, float]]]:
    """Every sequence with its rows, and for each layer (layer, keys, queries, height of keys, of queries).

    Sequences are told apart by their lengths; attention between two of equal length is drawn on two.
    """
    stacks: dict[int, Stack] = {}
    left = 0.0
    for length in _lengths(layers):
        stacks[length] = Stack(left, length)
        left += length + GAP
    steps = []
    for layer in layers:
        bound = layer.bounds[0]
        keys, queries = stacks[bound.keys], stacks[bound.queries]
        source = keys.heights[-1]
        target = max(queries.heights[-1], source if keys is not queries else 0.0) + LEVEL
        queries.heights.append(target)
        steps.append((layer, keys, queries, source, target))
    return list(stacks.values()), steps


def _diagram(axes: Axes, layers: Sequence[Layer], instance: int) -> None:
    stacks, steps = _stacks(layers)
    for layer, keys, queries, source, target in steps:
        bound = layer.bounds[min(instance, len(layer.bounds) - 1)]
        edges = bound.edges().tolist()
        lines = [((keys.left + j, source), (queries.left + i, target)) for i, j in edges]
        colors = [key_color(j, bound.keys) for _, j in edges]
        many = len(edges) > 4 * bound.queries
        axes.add_collection(
            LineCollection(lines, colors=colors, linewidths=0.7 if many else 1.3, alpha=0.6 if many else 0.95)
        )
        axes.text(
            queries.left + queries.length - 0.3,
            target,
            f" {layer.between}",
            fontsize=7,
            color=QUIET,
            va="center",
        )
        if keys is not queries:
            below = queries.heights[queries.heights.index(target) - 1]
            passed = [((queries.left + i, below), (queries.left + i, target)) for i in range(queries.length)]
            axes.add_collection(LineCollection(passed, colors=QUIET, linewidths=0.6, linestyles="dotted"))
    for stack in stacks:
        for height in stack.heights:
            x = [stack.left + i for i in range(stack.length)]
            colors = [key_color(i, stack.length) for i in range(stack.length)]
            axes.scatter(x, [height] * stack.length, s=34, c=colors, edgecolors=INK, linewidths=0.6, zorder=3)
        for i in range(stack.length):
            axes.text(stack.left + i, -0.9, str(i), fontsize=6, color=INK, ha="center", va="top")
    axes.set_xlim(-1.0, max(s.left + s.length for s in stacks) + 1.6)
    axes.set_ylim(-2.0, max(max(s.heights) for s in stacks) + 1.0)
    axes.axis("off")
