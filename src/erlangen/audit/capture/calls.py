"""What reached an attention call: pure records, one class for each kind of call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from erlangen.audit.capture.tape import Node

MASKING = -1e4
"""An additive bias of this value or lower masks its edge; a greater one does so where `masks` says so.

It divides what libraries write to mask (-inf, the dtype's minimum, -1e9, -10000) from what they write to
weigh (relative position biases, ALiBi slopes times distances).
"""

LEVEL = -1e3
"""A bias between `MASKING` and this value masks its edge if it is a level of its own, apart from the weights.

People mask with -5000, or scale a mask of -10000 by 1 / sqrt(d). ALiBi weighs with such numbers at distances
of thousands, but gets there in small steps: every value in between occurs, too.
"""

LEVELS = 3
"""How many masks may lie on top of one another (causal, padding, documents), so how many levels there are."""


@dataclass(eq=False)
class Call:
    """One attention call: where it was made and its sizes. Subclasses add what reached it."""

    module: str
    """The name of the module whose code made the call; empty for the model itself."""
    batch: int
    heads: int
    queries: int
    keys: int
    fingerprints: tuple[int, int] | None = field(default=None, kw_only=True)
    """Hashes of the contents of queries and keys: they tell which inputs each depends on."""
    source: str | None = field(default=None, kw_only=True)
    """`file:line` of the code that made the call, outside torch and erlangen; None where there is none."""

    api = ""

    @property
    def cache_key(self) -> Any:
        """Calls with equal keys realise equal relations, so one of them is probed; None: never equal."""
        return None


@dataclass(eq=False)
class SDPACall(Call):
    """`F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale, enable_gqa)`."""

    function: Callable[..., Any]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    is_causal: bool
    options: dict[str, Any]

    api = "sdpa"

    @property
    def cache_key(self) -> Any:
        tensors = tuple((t.shape, t.stride(), t.dtype, t.device) for t in (self.query, self.key, self.value))
        return "sdpa", tensors, content_key(self.mask), self.is_causal, tuple(sorted(self.options.items()))


@dataclass(eq=False)
class MHACall(Call):
    """`F.multi_head_attention_forward`, the body of `nn.MultiheadAttention` off its fast path."""

    function: Callable[..., Any]
    arguments: dict[str, Any]

    api = "mha"

    @property
    def cache_key(self) -> Any:
        given = self.arguments
        tensors = tuple(
            (given[name].shape, given[name].dtype, given[name].device) for name in ("query", "key")
        )
        masks = content_key(given["attn_mask"]), content_key(given["key_padding_mask"])
        flags = tuple(
            given[name]
            for name in ("num_heads", "add_zero_attn", "need_weights", "average_attn_weights", "is_causal")
        )
        weights = given["use_separate_proj_weight"], given["bias_k"] is None, given["in_proj_bias"] is None
        return "mha", tensors, masks, flags, weights


@dataclass(eq=False)
class EagerCall(Call):
    """Product, softmax, product, written out. The recorded steps lead from the scores to the weights."""

    scores: Node
    weights: Node
    key_factor: int
    """Which factor of the first product holds the keys: 0 or 1. A node knows the axes of both."""

    api = "eager"


@dataclass(eq=False)
class FlexCall(Call):
    """`torch.nn.attention.flex_attention.flex_attention`."""

    function: Callable[..., Any]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    score_mod: Callable[..., Any] | None
    block_mask: Any
    options: dict[str, Any]

    api = "flex"

    @property
    def cache_key(self) -> Any:
        tensors = tuple((t.shape, t.stride(), t.dtype, t.device) for t in (self.query, self.key, self.value))
        try:
            mods = self._block_mask_key(), function_key(self.score_mod)
        except UnknownContent:
            return None
        options = tuple(sorted((name, repr(value)) for name, value in self.options.items()))
        return "flex", tensors, *mods, options

    def _block_mask_key(self) -> Any:
        if self.block_mask is None:
            return None
        parts = self.block_mask.as_tuple()
        blocks = tuple(content_key(part) for part in parts if isinstance(part, torch.Tensor))
        return blocks, tuple(self.block_mask.BLOCK_SIZE), function_key(self.block_mask.mask_mod)


@dataclass(eq=False)
class AttendCall(Call):
    """`erlangen.attend(q, k, v, relation)`, whatever its backend."""

    function: Callable[..., Any]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    relation: Any
    options: dict[str, Any]
    weighted: Any = None
    """The weighted relation whose support `relation` is, if it has weights."""

    api = "attend"


@dataclass(eq=False)
class EdgeSoftmaxCall(Call):
    """PyG's `softmax` over the edges that end in the same node."""

    function: Callable[..., Any]
    scores: torch.Tensor
    arguments: dict[str, Any]
    sources: torch.Tensor
    targets: torch.Tensor

    api = "pyg"


@dataclass(eq=False)
class ModuleCall(Call):
    """Attention whose steps are not those above (chunked, block-sparse): its module is probed as a whole."""

    run: Callable[[torch.Tensor], torch.Tensor]
    """Hidden states, of the batch or of several copies of it, to the module's output."""
    hidden: torch.Tensor
    replaces: int
    """How many calls just before this one were parts of it, recognised alone."""
    key: Any
    """The module, its mode, and everything but the hidden states that its relation may depend on."""

    api = "module"

    @property
    def cache_key(self) -> Any:
        return self.key


@dataclass(frozen=True)
class Unexplained:
    """An attention-like call whose relation could not be measured, and why."""

    module: str
    reason: str
    failed: bool = False
    """Whether it could have been measured, and measuring failed."""


class UnknownContent(Exception):
    """A function depends on something whose content cannot be told."""


def function_key(function: Any, depth: int = 4) -> Any:
    """Two functions with the same key compute the same: equal code, on equal captured values.

    Masks of FlexAttention are functions, made anew in every forward pass and for every layer.
    """
    if function is None:
        return None
    if type(function) is not FunctionType or depth == 0:
        raise UnknownContent
    code = function.__code__
    try:
        cells = tuple(_value_key(cell.cell_contents, depth) for cell in function.__closure__ or ())
    except ValueError:
        raise UnknownContent from None  # a cell that is still empty
    names = [name for name in code.co_names if name in function.__globals__]
    used = tuple((name, _value_key(function.__globals__[name], depth)) for name in names)
    inner = [part for part in code.co_consts if isinstance(part, CodeType)]
    if inner or function.__kwdefaults__:
        raise UnknownContent
    defaults = tuple(_value_key(value, depth) for value in function.__defaults__ or ())
    return code, cells, used, defaults


def _value_key(value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return content_key(value)
    if value is None or isinstance(value, int | float | str):
        return type(value), value
    if isinstance(value, ModuleType | BuiltinFunctionType | torch.dtype | torch.device):
        return id(value)
    if isinstance(value, tuple | list):
        return tuple(_value_key(part, depth) for part in value)
    return function_key(value, depth - 1)


def masks(bias: torch.Tensor) -> torch.Tensor:
    """True where an additive bias masks its edge, False where it weighs one.

    A value masks that is at most `MASKING`; or that is at most `LEVEL` and lies on a level of its own. Levels
    are the values of the bias, parted wherever two neighbours differ by more than the logarithm of the least
    positive number: beyond such a gap every weight is exactly zero. Above all lies the level of the weights;
    more than `LEVELS` below it are no masks but weights that fall steeply with the distance.

    >>> masks(torch.tensor([0.0, -3.0, -5000.0, -1e9, float("-inf")])).tolist()
    [False, False, True, True, True]
    >>> masks(torch.arange(0.0, -5000.0, -0.5)).any().item()
    False
    """
    hidden = bias <= MASKING
    low = (bias <= LEVEL) & ~hidden
    if not bool(low.any()):
        return hidden
    values = bias.detach()[~hidden & ~bias.isnan()].unique().double().flip(0)
    starts = values[1:][values.diff() < least_logarithm(bias.dtype)]
    return hidden | (low & (bias <= starts[0].to(bias))) if 0 < len(starts) <= LEVELS else hidden


def least_logarithm(dtype: torch.dtype) -> float:
    """The bias at which a softmax gives exactly zero beside a bias of 0; half types are summed in single.

    >>> round(least_logarithm(torch.float32), 2), round(least_logarithm(torch.float16), 2)
    (-103.97, -103.97)
    """
    numbers = torch.finfo(dtype if dtype == torch.float64 else torch.float32)
    return log(numbers.tiny * numbers.eps) - log(2)


def content_key(tensor: torch.Tensor | None) -> Any:
    """Two tensors with the same key are equal, whatever memory they lie in."""
    if tensor is None:
        return None
    expanded = tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())]
    return fingerprint(expanded), tensor.shape, tensor.stride(), tensor.dtype


def fingerprint(tensor: torch.Tensor) -> int:
    """A hash of the bits of a tensor."""
    flat = tensor.detach().contiguous().cpu().flatten()
    return hash(flat.view(torch.uint8).numpy().tobytes())
