"""What a way of feeding a model is, what it makes, and the registry that the audit, the docs and the tests
read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import nn

from erlangen.audit.arguments.reading import Reading
from erlangen.audit.inputs import Inputs
from erlangen.audit.witnesses.runs import EVAL, Mode, Runner
from erlangen.errors import ParameterError

FEW = 4
"""So many positions are changed alone under feedings that differ from another one in one thing only."""


@dataclass(frozen=True, eq=False)
class Alike:
    """Rows `rows` of one item of a feeding must be rows `theirs` of the same item on other inputs."""

    inputs: Inputs
    item: int
    rows: np.ndarray
    theirs: np.ndarray
    content: str
    """The sequence that is padded. All rows of other sequences must be the same, and so must pooled
    outputs."""


@dataclass(frozen=True, eq=False)
class Feeding:
    """Inputs, a mode, and what is known about them."""

    label: str
    inputs: Inputs
    reading: Reading
    mode: Mode = EVAL
    given: bool = False
    """Whether these are the inputs that were given, as they are."""
    way: str = ""
    """The name of the way of feeding that made it; empty for inputs that were given."""
    exact: bool = True
    """Whether missing edges count."""
    resized: bool = False
    """Whether its sizes differ from the given ones: expectations that bring their own size cannot be held
    then."""
    other_content: bool = False
    """Whether it has other content than was given, of which an expectation about the given one says
    nothing."""
    all_content: bool = False
    """Whether all content is other content, and nothing else is another."""
    other_items: bool = False
    """Whether an expectation item by item is not about its items: there are more, or they are padded."""
    same_relations: bool = False
    """Whether every relation must be the given one."""
    same_family: bool = False
    """Whether every relation must be the given one at another length."""
    pads: str = ""
    """The side on which the audit added padding: "right", "left" or neither."""
    described: str = ""
    """How a sentence about a call under it begins; its label and a colon, if nothing else is said."""
    thorough: bool = False
    """Whether every position is changed, as on the given inputs, and not a few spread ones."""
    spread: int = 12
    """How many positions are changed, spread evenly, where not every one is; all others in groups."""
    at: tuple[int, ...] = ()
    """Positions that are changed besides: where something may begin or end."""
    alike: tuple[Alike, ...] = ()
    """Other inputs whose rows must be equal up to rounding."""
    at_most: bool = False
    """Whether calls may read less than is expected of them."""
    same: bool = False
    """Whether its outputs are known to be those of the given feeding, bit for bit: there is no more to
    see."""
    opened: str = ""
    """What leaves it open, whatever is measured."""
    added: str = ""
    """The mask that was not given and that the audit added."""
    unshown: str = ""
    """The mask that marks padding on the other side alone as it was given: the audit made this side, which
    the model may never meet."""

    @property
    def tolerant(self) -> bool:
        """Whether unequal rows are only said: padding on the left moves absolute positions, which is no fault
        by itself."""
        return self.pads == "left"

    def besides(self, n: int) -> list[int]:
        """The positions of `at` that n positions have, at most as many as are spread."""
        return [place for place in self.at[: self.spread] if place < n]


@dataclass(frozen=True, eq=False)
class Given:
    """The given inputs, and what a feeding may use to make others of them."""

    model: nn.Module
    inputs: Inputs
    reading: Reading
    runs: Callable[[Inputs], bool]
    """Whether the model takes these inputs."""
    on: Callable[..., Any] | None = None
    """The model's output on inputs, run within a context."""

    @classmethod
    def of(cls, runner: Runner, reading: Reading) -> Given:
        """The inputs of a runner, read so."""
        return cls(runner.model, runner.inputs, reading, runner.takes, runner.on)

    def feeding(self, label: str, inputs: Inputs, mode: Mode = EVAL, **more: object) -> Feeding:
        """A feeding of these inputs, whose roles are those of the given ones."""
        inputs = replace(inputs, label=label)
        return Feeding(label, inputs, self.reading.of(self.model, inputs), mode, **more)  # type: ignore[arg-type]


class Way(ABC):
    """A way of feeding a model the same kind of content. One file of `feedings/` defines and registers one.

    What must be compared under its feedings follows from what these say about themselves; what could not be
    compared is entered as open, with the argument that would settle it.
    """

    name: ClassVar[str]
    """What `feedings=[...]` calls it."""
    order: ClassVar[int] = 100
    """When it is tried: those with smaller numbers come first."""
    half_of: ClassVar[str] = ""
    """The way of which it is a part, that is only tried where it is asked for by itself."""
    runs: ClassVar[int] = 0
    """About so many runs it takes to make its feedings, before these are tried, where these are many."""
    long: ClassVar[bool] = False
    """Whether it makes longer inputs: these take what time is left, and are made of the whole given ones."""
    shortens: ClassVar[bool] = False
    """Whether it makes shorter inputs of the given ones."""
    at_full_length: ClassVar[bool] = False
    """Whether its first feeding is tried at full length, where all others are tried at a short beginning."""

    @abstractmethod
    def make(self, given: Given) -> Iterator[Feeding]:
        """The feedings that are made from the given inputs; none where the inputs do not offer it."""

    def untried(self, model: nn.Module, made: bool, longest: int) -> str | None:
        """What of it was not tried, and why; `longest` is the longest sequence that was fed."""
        return None if made else "the model's inputs do not offer it"


FEEDINGS: dict[str, Way] = {}
"""Every way of feeding by its name, in the order in which they are tried; filled by `register`."""

_Way = TypeVar("_Way", bound=Way)


def register(cls: type[_Way]) -> type[_Way]:
    """Make a way of feeding known to `audit`; an error if it lacks a method, or its name is taken."""
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or name in ("", "given"):
        raise ParameterError(f"the feeding {cls.__name__} needs a name of its own, got {name!r}")
    if cls.half_of and cls.half_of not in FEEDINGS:
        raise ParameterError(f"the feeding {name!r} is half of {cls.half_of!r}, which is no feeding")
    if cls.name in FEEDINGS:
        raise ParameterError(f"there is a feeding {cls.name!r} already: {type(FEEDINGS[cls.name]).__name__}")
    ways = sorted([*FEEDINGS.values(), cls()], key=lambda way: (bool(way.half_of), way.order))
    FEEDINGS.clear()
    FEEDINGS.update({way.name: way for way in ways})
    return cls
