"""Provenance of scores: from a product of activations, through masks and softmax, to the weights.

Written-out attention is many calls. Each tensor that descends from a product of two activations carries a
`Node`: the step that made it, with its arguments. A chain of known steps can be replayed with all scores
zero; a chain with a step that moves entries about (chunking, padding, concatenating) is opaque.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from erlangen.audit.capture.unexplained import Unexplained

PRODUCTS = {"matmul", "bmm", "einsum", "baddbmm", "mm", "rmatmul"}
ADDING = {"add", "radd", "iadd", "sub", "subtract", "isub"}
SCALING = {
    *("mul", "multiply", "imul", "div", "divide", "true_divide", "truediv", "itruediv", "neg", "tanh", "to"),
    *("type", "type_as", "float", "half", "bfloat16", "double", "contiguous", "clone", "detach"),
}
"""Steps of which zeros are zeros, whatever else they are given."""
ENTRYWISE = {
    *(*ADDING, *SCALING, "rmul", "rsub", "masked_fill", "where", "clamp", "clip", "maximum", "minimum"),
    *("nan_to_num", "dropout", "alpha_dropout", "dropout1d", "softmax", "abs", "relu", "leaky_relu"),
    *("square", "pow"),
}
RESHAPING = {
    *("view", "reshape", "unsqueeze", "squeeze", "expand", "flatten", "unflatten", "expand_as", "view_as"),
}
TRANSPOSING = {"transpose", "permute", "swapdims"}
_WRITING = {"setitem", "index_put", "scatter"}
MOVING = {
    *(*_WRITING, "cat", "concat", "stack", "pad", "getitem", "as_strided", "gather", "index_select", "flip"),
    *("roll", "chunk", "split", "take_along_dim", "movedim", "swapaxes", "repeat", "unfold", "unbind"),
    *("tril", "triu", "repeat_interleave", "rearrange", "narrow", "select", "scatter_add"),
}
MOVING_ZEROS = (MOVING | RESHAPING | TRANSPOSING) - _WRITING
"""Steps that only move entries, so that zeros stay zeros."""


def name_of(function: Callable[..., Any]) -> str:
    """The plain name of a torch function or method: `__iadd__` -> "iadd", `masked_fill_` -> "masked_fill"."""
    return getattr(function, "__name__", "").strip("_")


def in_place(function: Callable[..., Any]) -> bool:
    """Whether the function writes to its first argument."""
    name = getattr(function, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and name.strip("_") in ENTRYWISE
    )


@dataclass(eq=False)
class Node:
    """One step of a chain that began with a product of two activations."""

    function: Callable[..., Any] | None
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    axes: tuple[int, int]
    """The axes, counted from the end, that came from the first and from the second factor."""
    factors: tuple[torch.Tensor, torch.Tensor] | None
    opaque: bool = False
    softmax: Node | None = None
    """The softmax that this chain went through, if it did."""
    module: str = ""
    consumed: bool = False
    vanishes: bool = False
    """Zero whenever the scores are, wherever its entries were moved (relative position terms, shifted)."""

    @property
    def weights(self) -> bool:
        """Whether the chain has gone through a softmax."""
        return self.softmax is not None


@dataclass(frozen=True, eq=False)
class Ref:
    """A tracked argument: the node that can replay it."""

    node: Node


class Tape:
    """The nodes of all living tensors, and of every softmax that was seen."""

    def __init__(self) -> None:
        self._nodes: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.softmaxes: list[Node] = []

    @property
    def other_softmaxes(self) -> int:
        """Softmax calls that were not attention: no product made the scores, their weights weigh nothing."""
        return sum(1 for node in self.softmaxes if not node.consumed and node.opaque)

    def unfinished(self) -> list[Unexplained]:
        """Softmax calls over a product of activations whose weights never met values."""
        return [
            Unexplained(node.module, "a softmax over products whose weights were not seen to weigh values")
            for node in self.softmaxes
            if not node.consumed and not node.opaque
        ]

    def node(self, value: Any) -> Node | None:
        """The node of a tensor, or None."""
        return self._nodes.get(value) if isinstance(value, torch.Tensor) else None

    def put(self, tensor: torch.Tensor, node: Node) -> None:
        """Let a tensor carry a node."""
        self._nodes[tensor] = node

    def tracked(self, arguments: Any) -> list[Node]:
        """The nodes among the arguments of a call, in order."""
        return [node for tensor in tensors(arguments) if (node := self.node(tensor)) is not None]

    def refer(self, value: Any) -> Any:
        """An argument as it is recorded: a `Ref` in place of a tensor that can be replayed.

        Integers and booleans made from scores (the k largest, a comparison) stay as recorded: they are the
        mask that this data chose.
        """
        node = self.node(value)
        if node is None or not value.is_floating_point():
            return value
        return torch.zeros_like(value) if node.opaque and node.vanishes else Ref(node)

    @staticmethod
    def tracked_refs(node: Node) -> list[Node]:
        """The nodes that a replayable step was made from."""
        args, kwargs = node.arguments
        return [value.node for value in (*args, *kwargs.values()) if isinstance(value, Ref)]

    def root(self, function: Callable[..., Any], args: Any, kwargs: Any, out: torch.Tensor) -> None:
        """Begin a chain at a product of two activations."""
        name = name_of(function)
        factors = product_factors(name, args, kwargs)
        if factors is None:
            return
        axes = free_axes(name, args, kwargs, out)
        if axes is None:
            return
        first, second = factors
        bias = (args[0],) if name == "baddbmm" and args and isinstance(args[0], torch.Tensor) else ()
        made = Node(None, (bias, kwargs), out.shape, out.dtype, out.device, axes, (first, second))
        made.vanishes = not bias
        self.put(out, made)

    def step(self, function: Callable[..., Any], args: Any, kwargs: Any, out: Any, nodes: list[Node]) -> None:
        """Continue the chains of a call's arguments in its output."""
        name = name_of(function)
        if name == "setitem":
            self.put(args[0], opaque(args[0], nodes[-1]))
            return
        moved = name in MOVING or name in RESHAPING or name in TRANSPOSING
        if not (moved or name in ENTRYWISE):
            return
        if not isinstance(out, torch.Tensor):
            for part in tensors(out) if moved else ():
                self.put(part, opaque(part, nodes[0]))
            return
        known = [node for node in nodes if not (node.opaque and node.vanishes)]
        if name in ADDING and known and not any(node.weights for node in known):
            nodes = known
        parent = max(nodes, key=lambda node: node.weights)
        axes = None if any(node.opaque for node in nodes) else carried_axes(name, args, kwargs, out, parent)
        if axes is None or any(node.axes != parent.axes for node in nodes):
            if not (moved or parent.opaque):
                return
            made = opaque(out, parent)
        else:
            arguments = mapped((args, kwargs), self.refer)
            made = Node(function, arguments, out.shape, out.dtype, out.device, axes, parent.factors)
            made.softmax = parent.softmax
        made.vanishes = self._vanishes(name, args, kwargs)
        self.put(out, made)

    def _vanishes(self, name: str, args: Any, kwargs: Any) -> bool:
        """Whether a step turns zero scores into zeros."""
        floating = [t for t in tensors((args, kwargs)) if t.is_floating_point()]
        vanishing = [(node := self.node(t)) is not None and node.vanishes for t in floating]
        if name in SCALING:
            return bool(vanishing) and vanishing[0]
        numbers = [
            value for value in (*args, *kwargs.values()) if isinstance(value, float | int) and value != 0
        ]
        return all(vanishing) and (name in MOVING_ZEROS or (name in ADDING and not numbers))


def opaque(tensor: torch.Tensor, parent: Node | None) -> Node:
    """A node that remembers descent but cannot be replayed."""
    factors, softmax = (None, None) if parent is None else (parent.factors, parent.softmax)
    like = tensor.shape, tensor.dtype, tensor.device
    return Node(None, ((), {}), *like, (-2, -1), factors, opaque=True, softmax=softmax)


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors in nested tuples, lists and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in tensors(part)]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in tensors(part)]
    return []


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested tuples, lists and dictionaries with everything else in them changed."""
    if type(value) in (tuple, list):
        return type(value)(mapped(part, change) for part in value)
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    return change(value)


# ------------------------------------------------------------------------- products


def product_factors(name: str, args: Any, kwargs: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The two factors of a product of activations; None when a factor is a parameter or not a matrix."""
    if name == "einsum":
        operands = tensors(args[1:])
    elif name == "baddbmm":
        operands = tensors((args[1:], kwargs.get("batch1"), kwargs.get("batch2")))
    else:
        operands = tensors((args, kwargs))
    if len(operands) != 2 or any(isinstance(t, torch.nn.Parameter) or t.dim() < 2 for t in operands):
        return None
    first, second = operands
    return (second, first) if name == "rmatmul" else (first, second)


def einsum_letters(args: Any) -> tuple[str, str, str] | None:
    """The letters of two operands and the output of an einsum equation; None for other forms."""
    if not args or not isinstance(args[0], str):
        return None
    equation = args[0].replace(" ", "").replace("...", ".")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if not arrow or len(parts) != 2:
        return None
    return parts[0], parts[1], right


def free_axes(name: str, args: Any, kwargs: Any, out: torch.Tensor) -> tuple[int, int] | None:
    """Which axes of a product came from one factor alone: (from the first, from the second)."""
    if name != "einsum":
        return (-2, -1) if out.dim() >= 2 else None
    letters = einsum_letters(args)
    if letters is None:
        return None
    first, second, right = letters
    mine = [letter for letter in right if letter in first and letter not in second]
    other = [letter for letter in right if letter in second and letter not in first]
    if len(mine) != 1 or len(other) != 1:
        return None
    return right.index(mine[0]) - len(right), right.index(other[0]) - len(right)


def contracted_axis(name: str, args: Any, kwargs: Any, weights: torch.Tensor) -> int | None:
    """The axis of the weights that a product sums over; None when it is not one axis."""
    if name == "einsum":
        letters = einsum_letters(args)
        if letters is None:
            return None
        operands = tensors(args[1:])
        mine, other = (letters[0], letters[1]) if operands[0] is weights else (letters[1], letters[0])
        summed = [letter for letter in mine if letter in other and letter not in letters[2]]
        return mine.index(summed[0]) - len(mine) if len(summed) == 1 else None
    factors = product_factors(name, args, kwargs)
    if factors is None:
        return None
    return -1 if factors[0] is weights else -2


def carried_axes(
    name: str, args: Any, kwargs: Any, out: torch.Tensor, parent: Node
) -> tuple[int, int] | None:
    """Where the two free axes of a chain are after a step; None when the step moves entries otherwise."""
    a, b = parent.axes
    if name in TRANSPOSING or name == "swapaxes":
        dims = [*args[1:], *kwargs.values()]
        dims = list(dims[0]) if dims and isinstance(dims[0], tuple | list | torch.Size) else dims
        rank = len(parent.shape)
        order = list(range(rank))
        if name == "permute":
            order = [int(d) % rank for d in dims]
        else:
            x, y = (int(d) % rank for d in dims)
            order[x], order[y] = order[y], order[x]
        return order.index(a % rank) - rank, order.index(b % rank) - rank
    if name in ("cat", "concat"):
        parts = list(args[0])
        along = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        first = parts[0].shape == parent.shape and all(p.shape[-1] < parent.shape[-1] for p in parts[1:])
        return (a, b) if first and along in (-1, out.dim() - 1) and (a, b) == (-2, -1) else None
    if name == "getitem":
        return (a, b) if (a, b) == (-2, -1) and _keeps_a_head(args[1], out, parent) else None
    if name in RESHAPING:
        same_end = out.dim() >= 2 and out.shape[-2:] == parent.shape[-2:]
        return (a, b) if (a, b) == (-2, -1) and same_end else None
    if name in MOVING:
        return None
    if out.dim() < len(parent.shape) or any(out.shape[axis] != parent.shape[axis] for axis in (a, b)):
        return None
    return a, b


def _keeps_a_head(index: Any, out: torch.Tensor, parent: Node) -> bool:
    """Whether an index is [..., :stop]: it drops columns at the end, such as attention sinks."""
    if not (isinstance(index, tuple) and len(index) >= 2 and index[-1].__class__ is slice):
        return False
    whole = all(part is Ellipsis or part == slice(None) for part in index[:-1])
    last = index[-1]
    starts = last.start in (None, 0) and last.step in (None, 1)
    return whole and starts and out.shape[:-1] == parent.shape[:-1]
