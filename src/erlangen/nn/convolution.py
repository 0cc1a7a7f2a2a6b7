"""A convolution as attention: one head for each offset of the kernel, each reading a single key."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, Self

import torch
from torch import Tensor, nn

from erlangen.attention import attend
from erlangen.errors import ParameterError, ShapeError
from erlangen.relations import GridOffset, Offset, PerHead, Relation


class ConvolutionAttention(nn.Module):
    """The attention layer that equals an `nn.Conv1d` or `nn.Conv2d` of stride 1.

    A convolution with offsets Delta and one matrix W_d per offset is

        h_i = sum over d in Delta of W_d x_{i+d} + b,    x = 0 outside the input.

    Head d attends over R_d = {(i, i + d)}. Its softmax is over one key, so alpha = 1 for *every* query and
    key map, and none is learned here; its value is x itself and its output map is W_d. Where i + d lies
    outside the input R_d has no key, and an empty row gives zero: that is zero padding. The heads are summed,
    so the result is the convolution, exactly. The attention costs one edge per head and position.

    Takes and gives what the convolution does: (channels, length) or (channels, height, width), with or
    without a batch in front. Dilation, padding (a number, "same", "valid"), groups and bias are the
    convolution's. Parameters: `weight` (heads, out channels, in channels / groups), the matrices W_d; `bias`.

    >>> import torch
    >>> conv = nn.Conv1d(2, 3, kernel_size=3, padding=1).double()
    >>> layer = ConvolutionAttention(conv)
    >>> layer.relation(8)
    PerHead([Offset(by=-1), Offset(by=0), Offset(by=1)])
    >>> x = torch.randn(4, 2, 8, dtype=torch.float64)
    >>> bool((layer(x) - conv(x)).abs().max() < 1e-12)
    True
    """

    def __init__(self, conv: nn.Conv1d | nn.Conv2d) -> None:
        super().__init__()
        _refuse(conv)
        self.kernel_size, self.dilation = tuple(conv.kernel_size), tuple(conv.dilation)
        self.groups = conv.groups
        self.padding = _padding(conv)
        """Zeros (before, after) along each axis."""
        with torch.no_grad():
            heads = conv.weight.flatten(2).permute(2, 0, 1).clone(memory_format=torch.contiguous_format)
            bias = None if conv.bias is None else conv.bias.clone()
        self.weight = nn.Parameter(heads)
        self.bias = None if bias is None else nn.Parameter(bias)

    @classmethod
    def from_conv(cls, conv: nn.Conv1d | nn.Conv2d) -> Self:
        """The layer that equals `conv`; its weights are copied.

        >>> ConvolutionAttention.from_conv(nn.Conv2d(1, 1, 3, stride=2))
        Traceback (most recent call last):
        ...
        erlangen.errors.ParameterError: a convolution is attention when its stride is 1, got Conv2d(1, 1,
        kernel_size=(3, 3), stride=(2, 2))
        """
        return cls(conv)

    @property
    def channels(self) -> tuple[int, int]:
        """(in, out)."""
        return self.weight.shape[2] * self.groups, self.weight.shape[1]

    def extra_repr(self) -> str:
        size, dilation = self.kernel_size, self.dilation
        return f"{self.channels[0]}, {self.channels[1]}, kernel_size={size}, dilation={dilation}"

    def output_size(self, *size: int) -> tuple[int, ...]:
        """The lengths of the output along each axis, for those of the input.

        >>> ConvolutionAttention(nn.Conv2d(1, 1, (3, 2), padding=(0, 1))).output_size(5, 5)
        (3, 6)
        """
        if len(size) != len(self.kernel_size):
            raise ShapeError(f"a kernel {self.kernel_size} takes {len(self.kernel_size)} lengths, got {size}")
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        padded = zip(size, self.padding, reach, strict=True)
        lengths = tuple(n + before + after - r for n, (before, after), r in padded)
        if min(size) < 1 or min(lengths) < 1:
            raise ShapeError(
                f"a kernel {self.kernel_size} with dilation {self.dilation} and zeros {self.padding} does "
                f"not fit into an input of size {size}"
            )
        return lengths

    def relation(self, *size: int) -> PerHead:
        """The relation of each head, for an input of these lengths: a single offset.

        >>> ConvolutionAttention(nn.Conv2d(1, 1, (1, 2))).relation(2, 3)
        PerHead([GridOffset(shape=(2, 3), by=(0, 0), queries=(2, 2)),
                 GridOffset(shape=(2, 3), by=(0, 1), queries=(2, 2))])
        """
        output = self.output_size(*size)
        taps = product(*(range(k) for k in self.kernel_size))
        offsets = [
            tuple(d * t - before for d, t, (before, _) in zip(self.dilation, tap, self.padding, strict=True))
            for tap in taps
        ]
        if len(size) == 1:  # queries are the last positions, so query i sits at position size - output + i
            shift = size[0] - output[0]
            heads: list[Relation] = [Offset(by - shift) for (by,) in offsets]
        else:
            heads = [GridOffset(size, by, output) for by in offsets]
        return PerHead(heads)

    def forward(self, x: Tensor) -> Tensor:
        """`x` (channels, *size) or (batch, channels, *size) -> the same with the output's numbers."""
        axes = len(self.kernel_size)
        if x.dim() not in (axes + 1, axes + 2) or x.shape[-axes - 1] != self.channels[0]:
            raise ShapeError(
                f"x must have shape ({self.channels[0]}, {'n' if axes == 1 else 'height, width'}), with or "
                f"without a batch in front, got {tuple(x.shape)}"
            )
        size = tuple(x.shape[-axes:])
        output = self.output_size(*size)
        batch = x.shape[0] if x.dim() == axes + 2 else 1
        v = x.reshape(batch, 1, self.channels[0], prod(size)).transpose(-1, -2)
        k = v.new_zeros(batch, 1, prod(size), 1)
        q = v.new_zeros(batch, len(self.weight), prod(output), 1)
        read = attend(q, k, v, self.relation(*size), scale=1.0).unflatten(-1, (self.groups, -1))
        maps = self.weight.unflatten(1, (self.groups, -1))
        h = torch.einsum("bhngc,hgoc->bgon", read, maps).reshape(batch, self.channels[1], *output)
        h = h if self.bias is None else h + self.bias.view(-1, *[1] * axes)
        return h if x.dim() == axes + 2 else h.squeeze(0)


def _refuse(conv: Any) -> None:
    """Raise `ParameterError` for what is no convolution of the kind that attention equals."""
    if not isinstance(conv, (nn.Conv1d, nn.Conv2d)):
        raise ParameterError(f"ConvolutionAttention takes an nn.Conv1d or nn.Conv2d, got {conv!r}")
    if isinstance(conv.weight, nn.parameter.UninitializedParameter):
        raise ParameterError(f"the weights of {conv!r} do not exist before its first call")
    if set(conv.stride) != {1}:
        raise ParameterError(f"a convolution is attention when its stride is 1, got {conv!r}")
    if conv.padding_mode != "zeros":
        raise ParameterError(
            f"an empty row gives zero, so the padding must be zeros, got padding_mode={conv.padding_mode!r}"
        )


def _padding(conv: nn.Conv1d | nn.Conv2d) -> tuple[tuple[int, int], ...]:
    if conv.padding == "valid":
        return tuple((0, 0) for _ in conv.kernel_size)
    if conv.padding == "same":
        reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        return tuple((r // 2, r - r // 2) for r in reach)
    return tuple((int(p), int(p)) for p in conv.padding)
