"""The inputs of a model, and the content at their positions: what it is and how it is changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.arguments.containers import Packed, gathered, leaves, made, mapped, unpacked
from erlangen.errors import DataError, ParameterError


@dataclass(frozen=True, eq=False)
class Inputs:
    """One set of inputs of a model: positional and keyword arguments of its forward pass.

    `audit` takes a tensor (one argument), a tuple (positional arguments), a mapping (keyword arguments), an
    `Inputs`, or a *list* of any of these: several inputs, audited one after the other. What each input is
    (content, padding mask, labels) is read off its shape and type and measured; the fields below say it
    instead.

    >>> Inputs.of({"input_ids": torch.zeros(1, 4, dtype=torch.long)}).kwargs.keys()
    dict_keys(['input_ids'])
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = None  # type: ignore[assignment]
    label: str = "given"
    """How these inputs came about, for reports: "given", "shorter", "padded", ..."""
    content: Sequence[str] | None = None
    """The names of the inputs whose positions carry content; others are then never changed."""
    padding: Mapping[str, str] | None = None
    """Name of a padding mask -> name of the input it is about."""
    labels: Sequence[str] | None = None
    """The names of the inputs that only a loss may read."""
    vary: Callable[[Inputs, str, list[int], int | None], Inputs] | None = None
    """vary(inputs, name, positions, item): the same inputs with other content at these positions (in one
    batch item, or in all for None), where inputs belong together and changing one alone is not valid."""

    def __post_init__(self) -> None:
        if not isinstance(self.args, tuple):
            raise ParameterError(
                f"Inputs takes a tuple of arguments first, got {type(self.args).__name__}: write "
                "Inputs((x,), ...), or Inputs((), {'name': x}, ...)"
            )
        object.__setattr__(self, "kwargs", dict(self.kwargs or {}))

    @classmethod
    def of(cls, value: Any) -> Inputs:
        """Read what a user gave as the inputs of one forward pass."""
        if isinstance(value, Inputs):
            return value
        if isinstance(value, torch.Tensor):
            return cls((value,))
        if isinstance(value, Mapping):
            return cls((), {str(key): part for key, part in value.items()})
        if isinstance(value, tuple):
            return cls(value)
        raise DataError(
            "inputs must be a tensor, a tuple of arguments, a mapping of keyword arguments, an Inputs, or a "
            f"list of these; got {type(value).__name__}"
        )

    @classmethod
    def several(cls, value: Any) -> list[Inputs]:
        """A list means several inputs; anything else is one."""
        if isinstance(value, list):
            if not value:
                raise DataError("inputs is an empty list: give at least one input")
            return [
                replace(one, label=f"input {number}") if one.label == "given" and len(value) > 1 else one
                for number, one in enumerate(map(cls.of, value))
            ]
        return [cls.of(value)]

    def run(self, model: nn.Module) -> Any:
        """The model's output on these inputs."""
        output = model(*map(made, self.args), **{key: made(part) for key, part in self.kwargs.items()})
        held = [part for part in (*self.args, *self.kwargs.values()) if isinstance(part, Packed)]
        return unpacked(output, held[0].padded.shape[1]) if held else output

    def gathered(self) -> Inputs:
        """The same inputs with packed sequences and lists of tensors held as one tensor of positions each."""
        for name, tensor in leaves({**dict(enumerate(self.args)), **self.kwargs}):
            if tensor.is_nested:
                raise DataError(
                    f"the input {name} is a nested tensor, whose sequences cannot be changed position by "
                    "position: give a padded tensor with a mask or lengths, or a list of several inputs"
                )
        if self.vary is not None:
            return self
        named = bool(self.content or self.padding or self.labels)  # by the names of entries, perhaps
        held = gathered({**dict(enumerate(self.args)), **self.kwargs}, lists=not named)
        args = tuple(held[number] for number in range(len(self.args)))
        return replace(self, args=args, kwargs={key: held[key] for key in self.kwargs})

    def named(self, model: nn.Module) -> dict[str, Any]:
        """Every argument under the name that the model's forward gives it."""
        try:
            parameters = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):
            parameters = []
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names += [f"argument {i}" for i in range(len(names), len(self.args))]
        return {**dict(zip(names, self.args, strict=False)), **self.kwargs}

    def leaves(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Every tensor among the arguments, also inside containers and objects (as `batch.input_ids`).

        >>> sorted(Inputs.of(({"ids": torch.zeros(1), "more": [torch.ones(1)]},)).leaves(nn.Identity()))
        ['input.ids', 'input.more.0']
        """
        return dict(leaves(self.named(model)))

    def map(self, change: Callable[[torch.Tensor], torch.Tensor], label: str | None = None) -> Inputs:
        """The same inputs with every tensor replaced by change(tensor), inside containers too.

        A tensor that is passed twice is one tensor afterwards, too.
        """
        made: dict[int, torch.Tensor] = {}

        def once(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in made:
                made[id(tensor)] = change(tensor)
            return made[id(tensor)]

        return replace(
            self,
            args=tuple(mapped(part, once) for part in self.args),
            kwargs={key: mapped(part, once) for key, part in self.kwargs.items()},
            label=self.label if label is None else label,
        )

    def copied(self) -> Inputs:
        """The same inputs in memory of their own: a model may write to what it is given."""
        return self.map(torch.clone)

    def check_names(self, model: nn.Module) -> None:
        """Raise unless the names in `content`, `padding` and `labels` are names of inputs."""
        names = list(self.leaves(model))
        padding = self.padding or {}
        if not isinstance(padding, Mapping):
            raise ParameterError(
                f"padding= maps the name of a mask to the name of its input; got {padding!r}"
            )
        for field, given in (
            ("content", self.content or ()),
            ("labels", self.labels or ()),
            ("padding", [*padding, *padding.values()]),
        ):
            if isinstance(given, str):
                raise ParameterError(f"{field}= takes a list of names; got the string {given!r}")
            for name in given:
                if name not in names:
                    raise ParameterError(f"{field}= names {name!r}, which is no tensor of the inputs {names}")


@dataclass(frozen=True)
class Pad:
    """The token that a model itself takes for padding, and the module behind which it can be changed."""

    token: int
    embedding: str


@dataclass(frozen=True, eq=False)
class Content:
    """One input that carries content: token ids, vectors, patches, samples. Passed twice, it is one."""

    name: str
    tensor: torch.Tensor
    axis: int | None
    """The axis of positions; None for one vector of each sequence, which has no positions."""
    batch_axis: int | None
    pool: torch.Tensor | None
    """Token ids to change to, for token inputs."""
    patch: int | None = None
    """For images: positions are square patches of this many pixels a side."""
    block: int = 1
    """For samples of sound and other long axes: a position is this many entries."""
    embedding: str | None = None
    """The module that embeds these tokens, where content is changed behind it: other ids would not be
    valid."""
    together: tuple[Content, ...] = ()
    """Other inputs that are changed at the same positions: the keys and values that belong to queries."""

    pad: Pad | None = None
    """The token that is padding, where the model tells it by itself: it stays where it is."""

    @property
    def length(self) -> int:
        """How many positions there are."""
        if self.patch is not None:
            return (self.tensor.shape[-2] // self.patch) * (self.tensor.shape[-1] // self.patch)
        return 1 if self.axis is None else -(-self.tensor.shape[self.axis] // self.block)

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return 1 if self.batch_axis is None else self.tensor.shape[self.batch_axis]

    @property
    def sequence(self) -> bool:
        """Whether its positions are entries along one axis, so that it can be cut and padded."""
        return self.axis is not None and self.patch is None and self.block == 1

    def changed(self, positions: Any, item: int | None = None, seed: int = 0) -> torch.Tensor:
        """The tensor with other content at these positions, in one batch item or in all; shapes stay."""
        result = self.tensor.clone()
        fresh = self._fresh(seed)
        for position in np.atleast_1d(positions).tolist():
            where = self.where(position, item)
            result[where] = fresh[where]
        return result if self.pad is None else torch.where(self.tensor == self.pad.token, self.tensor, result)

    def _fresh(self, seed: int) -> torch.Tensor:
        """Other content everywhere: different at every position."""
        tensor = self.tensor
        generator = torch.Generator(device="cpu").manual_seed(1_000_003 + seed)
        if self.pool is not None:
            ids = tensor.cpu().long().contiguous()
            places = torch.searchsorted(self.pool, ids).clamp(max=len(self.pool) - 1)
            known = self.pool[places] == ids
            # Moving on by 1 .. size - 1 places never ends where it began.
            moves = torch.randint(1, max(len(self.pool), 2), tensor.shape, generator=generator, device="cpu")
            moved = self.pool[(places + moves) % len(self.pool)]
            return torch.where(known, moved, self.pool[moves % len(self.pool)]).to(tensor)
        kind = torch.complex64 if tensor.is_complex() else torch.float32
        noise = torch.randn(tensor.shape, generator=generator, dtype=kind, device="cpu")
        spread = float(tensor.detach().to(kind).std(correction=0).nan_to_num()) or 1.0
        return tensor + (noise * spread).to(tensor)

    def where(self, position: int, item: int | None) -> tuple[Any, ...]:
        """The index of one position, in one batch item or in all."""
        where: list[Any] = [slice(None)] * self.tensor.dim()
        if item is not None and self.batch_axis is not None:
            where[self.batch_axis] = item
        if self.patch is not None:
            row, column = divmod(position, self.tensor.shape[-1] // self.patch)
            where[-2] = slice(row * self.patch, (row + 1) * self.patch)
            where[-1] = slice(column * self.patch, (column + 1) * self.patch)
        elif self.axis is not None:
            start = position * self.block
            where[self.axis] = position if self.block == 1 else slice(start, start + self.block)
        return tuple(where)


def changed_together(inputs: Inputs, content: Content, positions: Any, item: int | None, seed: int) -> Inputs:
    """The inputs with other content at these positions, of all that is changed together."""
    for number, one in enumerate((content, *content.together)):
        inputs = with_content(inputs, one, one.changed(positions, item, seed + 17 * number))
    return inputs


def with_content(inputs: Inputs, content: Content, tensor: torch.Tensor) -> Inputs:
    """The inputs with this content replaced, wherever the tensor was passed."""
    return inputs.map(lambda part: tensor if part is content.tensor else part)
