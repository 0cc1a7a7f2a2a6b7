"""What reached an attention call: pure records, one class for each kind of call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from erlangen.audit.capture.tape import Node

MASKING = -1e4
"""An additive bias of this value or lower masks its edge; a greater one is an edge with a weight.

It divides what libraries write to mask (-inf, the dtype's minimum, -1e9, -10000) from what they write to
weigh (relative position biases, ALiBi slopes times distances).
"""


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
