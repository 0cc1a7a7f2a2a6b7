"""A convolution as attention: equal in values and gradients, and nothing else is taken."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import erlangen as er
import erlangen.nn.convolution
from erlangen.errors import ParameterError, ShapeError
from erlangen.nn import ConvolutionAttention
from erlangen.relations import Full, PerHead

TOLERANCE = 1e-12


def apart(a, b):
    assert a.shape == b.shape
    return float((a - b).detach().abs().max())


def gap(conv, x):
    """The largest difference between a convolution and its attention, in output and in every gradient."""
    layer = ConvolutionAttention.from_conv(conv)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    h, expected = layer(mine), conv(other)
    weights = torch.randn(expected.shape, dtype=x.dtype)
    (h * weights).sum().backward()
    (expected * weights).sum().backward()
    folded = conv.weight.grad.flatten(2).permute(2, 0, 1)
    found = [apart(h, expected), apart(mine.grad, other.grad), apart(layer.weight.grad, folded)]
    if conv.bias is not None:
        found.append(apart(layer.bias.grad, conv.bias.grad))
    return max(found)


@st.composite
def convolutions(draw, axes):
    groups = draw(st.integers(1, 2))
    c_in, c_out = (groups * draw(st.integers(1, 2)) for _ in range(2))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    dilation = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    number = st.integers(0, 4)
    padding = draw(
        st.one_of(st.sampled_from(["same", "valid"]), number, st.tuples(*[number] * axes))
        if axes > 1
        else st.one_of(st.sampled_from(["same", "valid"]), number)
    )
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    zeros = reach if padding == "same" else [0] * axes if padding == "valid" else None
    if zeros is None:
        zeros = [2 * p for p in (padding if isinstance(padding, tuple) else (padding,) * axes)]
    size = tuple(
        draw(st.integers(max(1, r - z + 1), max(1, r - z + 1) + 5)) for r, z in zip(reach, zeros, strict=True)
    )
    torch.manual_seed(draw(st.integers(0, 99)))
    kind = {1: nn.Conv1d, 2: nn.Conv2d}[axes]
    conv = kind(
        c_in, c_out, kernel, dilation=dilation, padding=padding, groups=groups, bias=draw(st.booleans())
    )
    lead = () if draw(st.booleans()) else (draw(st.integers(1, 2)),)
    return conv.double(), torch.randn(*lead, c_in, *size, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@given(convolutions(1))
@settings(max_examples=80)
def test_it_equals_conv1d(case):
    assert gap(*case) < TOLERANCE


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@given(convolutions(2))
@settings(max_examples=60)
def test_it_equals_conv2d(case):
    assert gap(*case) < TOLERANCE


def test_an_input_shorter_than_the_kernel():
    conv = nn.Conv1d(2, 3, 7, padding=3).double()
    assert gap(conv, torch.randn(2, 2, 2, dtype=torch.float64)) < TOLERANCE
    with pytest.raises(ShapeError, match=r"kernel \(7,\).*does not fit into an input of size \(6,\)"):
        ConvolutionAttention(nn.Conv1d(1, 1, 7))(torch.randn(1, 6))


def test_the_comparison_rejects(monkeypatch):
    """One head too full, an offset too far, a wrong scale: each is seen."""
    conv, x = nn.Conv1d(2, 2, 3, padding=1).double(), torch.randn(2, 6, dtype=torch.float64)
    right = ConvolutionAttention.relation
    monkeypatch.setattr(
        ConvolutionAttention, "relation", lambda s, *n: PerHead([*right(s, *n).members[:-1], Full()])
    )
    assert gap(conv, x) > 1e-3
    monkeypatch.setattr(ConvolutionAttention, "relation", lambda s, *n: PerHead(right(s, *n).members[::-1]))
    assert gap(conv, x) > 1e-3


def test_it_runs_through_attend_with_one_edge_per_head_and_row(monkeypatch):
    seen = []

    def watched(q, k, v, relation, **options):
        seen.append(relation)
        return er.attend(q, k, v, relation, **options)

    monkeypatch.setattr(erlangen.nn.convolution, "attend", watched)
    layer = ConvolutionAttention(nn.Conv1d(1, 1, 5, padding=2))
    layer(torch.randn(1, 100))
    [relation] = seen
    assert relation == PerHead([er.Offset(d) for d in (-2, -1, 0, 1, 2)])
    assert [member.on(100).num_edges for member in relation.members] == [98, 99, 100, 99, 98]


def test_it_computes_with_float32_and_trains():
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 4, 3, padding=1)
    layer, x = ConvolutionAttention(conv), torch.randn(2, 2, 6, 5)
    assert apart(layer(x), conv(x)) < 1e-5
    goal = torch.randn(2, 4, 6, 5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    losses = []
    for _ in range(5):
        loss = (layer(x) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert not torch.equal(layer.weight, ConvolutionAttention(conv).weight)


def test_the_convolution_is_left_as_it_was():
    conv = nn.Conv1d(1, 1, 3)
    before = copy.deepcopy(conv.state_dict())
    layer = ConvolutionAttention(conv)
    with torch.no_grad():
        layer.weight.zero_()
    assert all(torch.equal(before[name], value) for name, value in conv.state_dict().items())


@pytest.mark.parametrize(
    ("conv", "message"),
    [
        (nn.Conv1d(1, 1, 3, stride=2), "stride is 1"),
        (nn.Conv2d(1, 1, 3, stride=(1, 2)), "stride is 1"),
        (nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"), "padding must be zeros.*'circular'"),
        (nn.ConvTranspose1d(1, 1, 3), r"takes an nn.Conv1d or nn.Conv2d, got ConvTranspose1d"),
        (nn.Conv3d(1, 1, 3), r"takes an nn.Conv1d or nn.Conv2d, got Conv3d"),
        (nn.Linear(1, 1), r"takes an nn.Conv1d or nn.Conv2d, got Linear"),
    ],
)
def test_what_is_not_such_a_convolution_is_refused(conv, message):
    with pytest.raises(ParameterError, match=message):
        ConvolutionAttention.from_conv(conv)


def test_lazy_convolutions_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says once that lazy modules are new
        conv = nn.LazyConv1d(1, 3)
    with pytest.raises(ParameterError, match="do not exist before its first call"):
        ConvolutionAttention(conv)


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (1, 2, 2, 8)])
def test_wrong_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match=r"x must have shape \(2, n\)"):
        ConvolutionAttention(nn.Conv1d(2, 1, 3))(torch.randn(shape))
