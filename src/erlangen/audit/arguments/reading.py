"""Reading the inputs of a model: which carry content, which are masks, positions or labels.

Roles follow from what a tensor is: its shape, its type, its values, and where names alone can tell (labels
are ordinary token ids), from a short list of exact names. What a role means is then measured by running the
model (`measured`): which axis is the batch, and which value of a mask marks padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from erlangen.audit.arguments.containers import counts_in, unreadable
from erlangen.audit.arguments.containers import sealed as sealed_in
from erlangen.audit.arguments.masks import Mask, mask_like, mask_shapes, says_mask, squeezed
from erlangen.audit.inputs import Content, Inputs

LABELS = {"labels", "label", "targets", "start_positions", "end_positions"}
"""Names that only labels have. Any tensor that holds -100, or the tokens moved on by one, is labels too."""
_SIZES = {"grid", "thw", "hw", "shape", "shapes", "size", "sizes"}
"""The last words of names of integers that say how large something is."""
_EDGES = {"edge_index", "adj", "adj_t", "edge_attr", "edge_weight"}
INDEX = "an index"
SOUND = {"input_values", "input_features", "waveform", "audio"}
_HIDES_TRUE = ("padding", "pad_mask", "ignore")
"""Parts of names by which a boolean mask is known to mark padding by True, as in torch.nn."""
BLOCKS = 48
"""A long axis of samples or frames is read as about this many blocks."""


@dataclass(eq=False)
class Reading:
    """What each input is."""

    contents: list[Content]
    masks: list[Mask] = field(default_factory=list)
    labels: list[Content] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    """Input name -> why its content is not changed."""
    refused: list[str] = field(default_factory=list)
    """Those of them that the model does not take with other content alone."""
    notes: list[str] = field(default_factory=list)
    """What was measured about the inputs and is worth saying."""
    opened: dict[str, str] = field(default_factory=dict)
    """Input name -> why it could not be judged, and the argument that would settle it."""

    def content(self, name: str) -> Content | None:
        """The content of this name, if it is one."""
        return next((one for one in self.contents if one.name == name), None)

    def mask(self, name: str) -> Mask | None:
        """The padding mask of a content."""
        return next((one for one in self.masks if one.content == name), None)

    def real(self, name: str) -> np.ndarray | None:
        """The real positions of a content, (batch, length); None when nothing marks padding."""
        mask = self.mask(name)
        return None if mask is None else mask.real()

    def by_group(self, name: str) -> np.ndarray | None:
        """The same, of each sequence of an item where it has several: (batch, choices, length)."""
        mask = self.mask(name)
        return None if mask is None else mask.by_group()

    @property
    def sequences(self) -> list[Content]:
        """The contents that have positions."""
        return [one for one in self.contents if one.axis is not None]

    @property
    def batch(self) -> int:
        """How many sequences the inputs hold."""
        return self.contents[0].batch if self.contents else 1

    def of(self, model: nn.Module, inputs: Inputs) -> Reading:
        """The same roles for other inputs of the same names."""
        leaves = inputs.leaves(model)

        def moved(one: Any) -> Any:
            others = {"together": tuple(map(moved, one.together))} if getattr(one, "together", ()) else {}
            return replace(one, tensor=leaves[one.name], **others)

        contents = [moved(one) for one in self.contents if one.name in leaves]
        sizes = {one.name: one.length for one in contents}

        def counted(mask: Mask) -> Mask:
            return replace(moved(mask), lengths=sizes.get(mask.content, mask.lengths) if mask.lengths else 0)

        return Reading(
            contents,
            [counted(one) for one in self.masks if one.name in leaves],
            [moved(one) for one in self.labels if one.name in leaves],
            self.ignored,
            self.refused,
            opened=self.opened,
        )


def read(model: nn.Module, inputs: Inputs) -> Reading:
    """The roles of all inputs, from what they are. Nothing is run.

    >>> ids = torch.tensor([[5, 3, 4, 6]])
    >>> found = read(nn.Identity(), Inputs.of({"ids": ids, "mask": ids > 3, "y": ids.roll(-1, 1)}))
    >>> [one.name for one in found.contents], found.masks[0].content, [one.name for one in found.labels]
    (['ids'], 'ids', ['y'])
    """
    inputs.check_names(model)
    leaves = {name: t for name, t in inputs.leaves(model).items() if t.layout == torch.strided}
    graph = any(_last(name) in _EDGES for name in leaves) or any(
        _last(name) in _EDGES for name in inputs.named(model)
    )
    found = Reading([])
    declared = None if inputs.content is None else set(inputs.content)
    waiting: list[tuple[str, torch.Tensor]] = []
    sealed = sealed_in(inputs.named(model))
    for name, tensor in leaves.items():
        if any(tensor is one.tensor for one in found.contents) or tensor.numel() == 0:
            continue
        if name in sealed:
            found.opened[name] = (
                f"{name} lies in an object that cannot be copied, and was left as it is: give its class a "
                "__copy__, or say vary=... or content=[...]"
            )
            continue
        if name in (inputs.padding or {}):
            waiting.append((name, tensor))
        elif name in (inputs.labels or ()):
            found.labels.append(_as_content(model, name, tensor, found, labels=True))
        elif declared is not None:
            if name in declared:
                found.contents.append(_as_content(model, name, tensor, found))
            elif mask_like(name, tensor):
                waiting.append((name, tensor))
        elif _last(name) in LABELS or _last(name).endswith("_labels") or is_labels(tensor, found):
            found.labels.append(_as_content(model, name, tensor, found, labels=True))
        elif tensor.dtype == torch.bool and tensor.dim() == 2 and not (found.contents or says_mask(name)):
            found.contents.append(_as_content(model, name, tensor, found))  # unless it is seen to hide
        elif mask_like(name, tensor) and (found.contents or len(leaves) > 1):
            waiting.append((name, tensor))
        elif (why := _not_content(name, tensor, found, graph)) is not None:
            found.ignored[name] = why
        else:
            found.contents.append(_as_content(model, name, tensor, found))
    if not found.contents and found.labels and not inputs.labels and declared is None:
        found.contents, found.labels = found.labels[:1], found.labels[1:]  # a name alone makes no labels
    if not found.contents and waiting and declared is None:  # bits are tokens when nothing else is
        name, tensor = waiting.pop(0)
        found.contents.append(_as_content(model, name, tensor, found))
    if found.sequences:
        found.contents.sort(key=lambda one: one.axis is None)
    _place_lengths(found)
    for name in counts_in(inputs.named(model)):
        if found.content(name) is not None and name not in (inputs.content or ()):
            found.contents = [one for one in found.contents if one.name != name]
            found.ignored[name] = "sizes"  # unless they are seen to hide
    for name, tensor in waiting:
        if declared is None and _features(name, tensor, found):
            found.contents.append(_as_content(model, name, tensor, found))
        else:
            _place_mask(inputs, name, tensor, found)
    for name, what in unreadable(inputs.named(model)).items():
        found.opened[name] = (
            f"{name} is {what}, which was left as it is: give a tensor, or say vary=... or content=[...]"
        )
    if declared is not None or inputs.vary is not None:
        found.opened.clear()  # the user has said what is content
    return found


_PARTS = ("prefix", "prompt", "past", "cache", "mem", "max", "min", "window", "chunk", "block")
"""Lengths of parts: what lies beyond them is no padding."""


def _place_lengths(found: Reading) -> None:
    """Lengths, one for each sequence, mark padding at its end."""
    first = found.sequences[0] if found.sequences else None
    for one in list(found.contents):
        sizes, name = one.tensor, _last(one.name)
        if first is None or one.axis is not None or one.pool is None or "len" not in name:
            continue
        if any(word in name for word in _PARTS):
            found.contents.remove(one)
            found.ignored[one.name] = "the length of a part"
            continue
        if first.sequence and bool((sizes >= 1).all()) and bool((sizes <= first.length).all()):
            found.contents.remove(one)
            found.masks.append(Mask(one.name, sizes, first.name, False, lengths=first.length))


def _place_mask(inputs: Inputs, name: str, tensor: torch.Tensor, found: Reading) -> None:
    """Find the input that a mask is about: the one named, or the first of its shape that has no mask yet."""
    about = (inputs.padding or {}).get(name)
    fitting = [
        one for one in found.sequences
        if (about is None or one.name == about) and squeezed(tensor) in mask_shapes(one)
    ]  # fmt: skip
    if not fitting:
        _place_coarse_mask(name, tensor, found)
        return
    # A mask of a decoder or of an encoder is about the input that shares that word.
    words = {word for word in name.replace(".", "_").split("_") if word not in ("mask", "attention", "key")}
    fitting.sort(key=lambda one: -len(words & set(one.name.replace(".", "_").split("_"))))
    free = [one for one in fitting if found.mask(one.name) is None]
    hides = any(word in name for word in _HIDES_TRUE) and "attention" not in name
    if tensor.is_floating_point():
        hides = hides and not bool((tensor < 0).any())
    if not free:
        found.ignored[name] = "a mask"
    else:
        found.masks.append(Mask(name, tensor, free[0].name, hides))


def place_masks_again(inputs: Inputs, leaves: dict[str, torch.Tensor], found: Reading) -> None:
    """Masks that fitted no input, where the axes of inputs turned out to be others than their usual ones."""
    for name in [name for name, why in found.ignored.items() if why == "a mask"]:
        del found.ignored[name]
        _place_mask(inputs, name, leaves[name], found)


def _place_coarse_mask(name: str, tensor: torch.Tensor, found: Reading) -> None:
    """A mask over every k-th position of the only sequence, or no padding mask at all."""
    found.ignored[name] = "a mask"
    one = found.sequences[0] if len(found.sequences) == 1 else None
    if one is None or tensor.dim() != 2 or one.batch_axis is None or found.mask(one.name) is not None:
        return
    batch, size = tensor.shape
    if batch == one.batch and 2 <= size < one.length and one.length % size == 0 and size != batch:
        del found.ignored[name]
        hides = any(word in name for word in _HIDES_TRUE) and "attention" not in name
        found.masks.append(Mask(name, tensor, one.name, hides, rate=one.length // size))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _features(name: str, tensor: torch.Tensor, found: Reading) -> bool:
    """Whether booleans are features of positions, (batch, length, features), and no mask."""
    first = found.sequences[0] if found.sequences else None
    if first is None or tensor.dtype != torch.bool or tensor.dim() < 2 or says_mask(name):
        return False
    lengths = {one.length for one in found.sequences}
    if tensor.dim() == 2:
        return tensor.shape[0] == first.batch and tensor.shape[1] > 1 and tensor.shape[1] not in lengths
    pairs = tensor.shape[-1] in lengths
    return tensor.shape[0] == first.batch and tensor.shape[1] in lengths and not pairs


def is_labels(tensor: torch.Tensor, found: Reading) -> bool:
    """Whether a tensor holds -100 (what losses skip), or the tokens of another input moved on by one."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        return False
    if bool((tensor == -100).any()):
        return True
    for one in found.contents:
        same = one.pool is not None and one.tensor.shape == tensor.shape and tensor.shape[-1] > 2
        if same and torch.equal(tensor[..., :-1].long(), one.tensor[..., 1:].long()):
            return True
    return False


def _not_content(name: str, tensor: torch.Tensor, found: Reading, graph: bool) -> str | None:
    """Why an input is neither content nor mask; None if it is content."""
    last = _last(name)
    if last in _EDGES:
        return "edges of a graph"
    if tensor.dim() == 0:
        return "a number"
    if tensor.is_floating_point() or tensor.is_complex():
        if tensor.dim() == 1 and not found.contents:
            return "one vector without positions"
        return None
    if graph:
        return "an index into a graph"
    words = last.split("_")
    if {"position", "positions"} & set(words):
        return "positions"
    if found.contents and words[-1] in _SIZES:
        return "sizes"
    if found.contents and tensor.dim() == 1:
        first = found.contents[0]
        beside = first.batch_axis is None and first.pool is not None and "." in name
        if beside and name.rpartition(".")[0] == first.name.rpartition(".")[0]:
            return None  # another sequence of the same list
        lengths = {one.length for one in found.sequences}
        return None if tensor.shape[0] in {first.batch, *lengths} else INDEX
    return None


def as_content(model: nn.Module, name: str, tensor: torch.Tensor, found: Reading) -> Content:
    """An input as one that carries content."""
    return _as_content(model, name, tensor, found)


def _as_content(
    model: nn.Module, name: str, tensor: torch.Tensor, found: Reading, labels: bool = False
) -> Content:
    """The axes of an input that carries content."""
    batch = found.contents[0].batch if found.contents else None
    batched = bool(found.contents) and found.contents[0].batch_axis is not None
    if not (tensor.is_floating_point() or tensor.is_complex()):
        pool = _pool(model, tensor, labels)
        if tensor.dim() == 1:
            alone = batched and tensor.shape[0] == batch  # one number for each sequence
            return Content(name, tensor, None if alone else 0, 0 if alone else None, pool)
        if tensor.dim() == 2 and not labels and _sequence_first(model):
            return Content(name, tensor, 0, 1, pool)
        return Content(name, tensor, 1, 0, pool)
    if _last(name) in SOUND and tensor.dim() in (2, 3):
        last = tensor.dim() == 2 or tensor.shape[1] == 1 or not _frames_first(model, tensor)
        axis = tensor.dim() - 1 if last else 1  # one channel is no sequence
        return Content(name, tensor, axis, 0, None, block=max(1, tensor.shape[axis] // BLOCKS))
    if tensor.dim() == 1:
        return Content(name, tensor, None, 0 if batched and tensor.shape[0] == batch else None, None)
    if tensor.dim() == 2:
        if batched and tensor.shape[0] == batch:
            return Content(name, tensor, None, 0, None)
        return Content(name, tensor, 0, None, None)
    if tensor.dim() == 4:
        patch = _patch_size(model)
        image = tensor.shape[1] <= 4 and min(tensor.shape[-2:]) >= 8
        if patch is None and image:
            patch = max(1, tensor.shape[-1] // 4)
        if patch is not None and min(tensor.shape[-2:]) >= patch:
            return Content(name, tensor, -1, 0, None, patch)
    if tensor.dim() == 3 and _sequence_first(model):
        return Content(name, tensor, 0, 1, None)
    return Content(name, tensor, 1, 0, None)


def _frames_first(model: nn.Module, sound: torch.Tensor) -> bool:
    """Whether sound is given as (batch, frames, features); samples and (batch, features, frames) are not."""
    bins = getattr(getattr(model, "config", None), "num_mel_bins", None)
    return not (bins == sound.shape[1] != sound.shape[2])


def _sequence_first(model: nn.Module) -> bool:
    if not type(model).__module__.startswith("torch.nn"):
        return False
    return next(
        (not m.batch_first for m in model.modules() if isinstance(getattr(m, "batch_first", None), bool)),
        False,
    )


def _patch_size(model: nn.Module) -> int | None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.stride == module.kernel_size and module.stride[0] > 1:
            return int(module.stride[0])
    return None


def special_tokens(model: nn.Module) -> set[int]:
    """Every id that the configuration and its parts name (`*_token_id`, `*_token_index`).

    >>> import types
    >>> model = nn.Identity()
    >>> model.config = types.SimpleNamespace(pad_token_id=0, vision=None, image_token_index=[7, 8])
    >>> sorted(special_tokens(model))
    [0, 7, 8]
    """
    found: set[int] = set()
    parts, seen = [getattr(model, "config", None)], set()
    while parts:
        config = parts.pop()
        if config is None or id(config) in seen:
            continue
        seen.add(id(config))
        for name, value in getattr(config, "__dict__", {}).items():
            if name.endswith(("token_id", "token_index", "token_ids")):
                values = value if isinstance(value, list | tuple) else [value]
                found.update(v for v in values if isinstance(v, int) and not isinstance(v, bool))
            elif name.endswith("config") and hasattr(value, "__dict__"):
                parts.append(value)
    return found


def _pool(model: nn.Module, tokens: torch.Tensor, labels: bool = False) -> torch.Tensor:
    """Token ids that are surely valid and not special: those up to the largest one given."""
    special = set() if labels else special_tokens(model)
    largest = max(int(tokens.max()), 1)
    if largest > 4 * tokens.numel() + 1024:  # a few of many ids do as well
        pool = sorted(set(tokens.flatten().tolist()) - special)
        return torch.tensor(pool if len(pool) > 1 else [0, 1], device="cpu")
    pool = [token for token in range(largest + 1) if token not in special]
    return torch.tensor(pool if len(pool) > 1 else [0, 1], device="cpu")


def contents(model: nn.Module, inputs: Inputs) -> list[Content]:
    """The inputs whose positions carry content, read off their shapes and types."""
    return [content for content in read(model, inputs).contents if content.axis is not None]


def real_positions(model: nn.Module, inputs: Inputs, content: Content) -> np.ndarray | None:
    """Which positions of each item are real, shape (batch, length); None when no padding is marked."""
    return read(model, inputs).real(content.name)
