"""Every case: what is computed, at which size, against whom, and what it should reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from benchmarks import problems
from benchmarks.problems import Problem
from benchmarks.targets import Target

Mode = str
FORWARD, TRAINING = "forward", "training"
BOTH = (FORWARD, TRAINING)

SEQUENCE = ("materialised", "sdpa", "flex")
WINDOW = (*SEQUENCE, "chunked", "local", "longformer")
GRAPH = ("transformer_conv", "gat_conv", "sdpa")


@dataclass(frozen=True)
class Case:
    """A named comparison. `make(n)` builds the problem; a family has several sizes and gives a slope."""

    name: str
    what: str
    make: Callable[[int], Problem]
    sizes: tuple[int, ...]
    peers: tuple[str, ...]
    """Modules of `benchmarks.peers`."""
    tiny: int
    """A size at which every contender runs in no time."""
    modes: tuple[Mode, ...] = BOTH
    targets: dict[Mode, Target] = field(default_factory=dict)
    linear: bool = False
    """Whether the slope of the family is held against the target of linear growth."""

    @property
    def is_family(self) -> bool:
        return len(self.sizes) > 1


def _window(name: str, n: int, window: int, forward: Target, training: Target) -> Case:
    return Case(
        name,
        f"each position reads itself and {window} before it; 8 heads x 64",
        partial(problems.sequence, "window", window=window),
        (n,),
        WINDOW,
        tiny=4 * window,
        targets={FORWARD: forward, TRAINING: training},
    )


def _sequence(
    name: str, what: str, kind: str, n: int, forward: Target, training: Target, more: tuple[str, ...] = ()
) -> Case:
    return Case(
        name,
        f"{what}; 8 heads x 64",
        partial(problems.sequence, kind),
        (n,),
        (*SEQUENCE, *more),
        tiny=512,
        targets={FORWARD: forward, TRAINING: training},
    )


def _graph(name: str, n: int, degree: int, forward: Target, training: Target) -> Case:
    return Case(
        name,
        f"each node reads {degree} random nodes; the attention alone, 4 heads x 32",
        partial(problems.graph, "graph", degree=degree),
        (n,),
        GRAPH,
        tiny=200,
        targets={FORWARD: forward, TRAINING: training},
    )


def _family(name: str, window: int) -> Case:
    return Case(
        name,
        f"window {window} at growing n; 8 heads x 64",
        partial(problems.sequence, "window", window=window),
        (4096, 8192, 16384, 32768, 65536, 131072),
        ("chunked", "sdpa"),
        tiny=4 * window,
        linear=True,
    )


ALL = (
    _window("window-256", 16384, 256, Target(2.0, 0.65), Target(2.5, 0.60)),
    _window("window-64", 4096, 64, Target(2.0, 0.45), Target(2.5, 0.45)),
    _window("window-8", 16384, 8, Target(3.0), Target(4.0)),
    _sequence(
        "big-bird",
        "window, global and random blocks of 64",
        "blocks",
        4096,
        Target(2.5, 0.70),
        Target(8.0, 0.70),
    ),
    _sequence("full", "every position reads all", "full", 4096, Target(1.0), Target(1.1)),
    _sequence("causal", "every position reads all up to itself", "causal", 4096, Target(1.1), Target(1.1)),
    _sequence(
        "irregular",
        "each position reads 94 random ones, 2.3% of pairs",
        "irregular",
        4096,
        Target(12.0),
        Target(10.0),
        ("transformer_conv",),
    ),
    _graph("graph-10k", 10_000, 32, Target(45.0, memory=1 / 20), Target(20.0, memory=1 / 20)),
    _graph("graph-100k", 100_000, 8, Target(12.0, memory=1 / 10), Target(8.0, memory=1 / 10)),
    Case(
        "graph-layer-10k",
        "a whole graph layer, three projections 128 -> 128 and the attention, degree 32, 4 heads x 32",
        partial(problems.graph, "layer", degree=32),
        (10_000,),
        ("transformer_conv",),
        tiny=200,
    ),
    Case(
        "graph-additive-10k",
        "additive scores a_i + b_j, a GATConv of slope 1, degree 32, 4 heads x 32",
        partial(problems.graph, "additive", degree=32),
        (10_000,),
        ("gat_conv",),
        tiny=200,
    ),
    Case(
        "planning-1m",
        "from a window of 256 to all the kernels need, nothing cached",
        partial(problems.planning, window=256),
        (1_000_000,),
        ("block_mask",),
        tiny=2048,
        modes=(FORWARD,),
        targets={FORWARD: Target(milliseconds=1000)},
    ),
    Case(
        "planning-16k",
        "the same at a size that create_block_mask can do",
        partial(problems.planning, window=256),
        (16_384,),
        ("block_mask",),
        tiny=2048,
        modes=(FORWARD,),
    ),
    Case(
        "decode",
        "one step of a decoding loop, window 256 of a growing store of 16,384 keys; 8 heads x 64",
        partial(problems.decode, window=256),
        (16_384,),
        ("sliced",),
        tiny=1024,
        modes=(FORWARD,),
        targets={FORWARD: Target(1.0)},
    ),
    _family("scaling-window-256", 256),
    _family("scaling-window-64", 64),
    Case(
        "scaling-causal",
        "causal attention at growing n; 8 heads x 64",
        partial(problems.sequence, "causal"),
        (512, 1024, 2048, 4096, 8192),
        ("sdpa",),
        tiny=256,
    ),
    Case(
        "scaling-graph",
        "random graphs of degree 8 at growing n; the attention alone, 4 heads x 32",
        partial(problems.graph, "graph", degree=8),
        (3_125, 6_250, 12_500, 25_000, 50_000, 100_000),
        ("transformer_conv",),
        tiny=200,
    ),
)

BY_NAME = {case.name: case for case in ALL}
