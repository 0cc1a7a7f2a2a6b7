"""Parameters of a kernel or relation that a layer holds, replaced by others: it computes with these."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from erlangen.attention.kernels import Additive, Kernel, SoftmaxDot
from erlangen.nn import Attention
from erlangen.relations import ALiBi, Causal, RelativeBias, Weighted


class Scaled(Kernel):
    """A kernel of one's own, with a parameter."""

    def __init__(self, factor: nn.Parameter) -> None:
        self.factor = factor

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return self.factor * (q * k).sum(-1)


def numbers(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.rand(shape, generator=torch.Generator().manual_seed(1)))


LAYERS: dict[str, Callable[[], Attention]] = {
    "kernel_sink": lambda: Attention(8, 2, Causal(), kernel=SoftmaxDot(sink=numbers(2))),
    "kernel_vector": lambda: Attention(8, 2, Causal(), kernel=Additive(numbers(2, 4))),
    "kernel_factor": lambda: Attention(8, 2, Causal(), kernel=Scaled(numbers())),
    "relation_table": lambda: Attention(8, 2, RelativeBias(numbers(2, 8), relation=Causal())),
    "relation_slopes": lambda: Attention(8, 2, ALiBi(numbers(2))),
    "relation_bias": lambda: Attention(8, 2, Weighted(Causal(), numbers(2, 5, 5))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_registered_is_what_is_computed_with(name: str) -> None:
    torch.manual_seed(0)
    layer, x = LAYERS[name]().double(), torch.randn(2, 5, 8).double()
    assert name in dict(layer.named_parameters())
    replaced = {key: value.detach().clone() for key, value in layer.named_parameters()}
    replaced[name] = 3 * replaced[name] + torch.arange(replaced[name].numel()).view_as(replaced[name])

    in_place = deepcopy(layer)
    with torch.no_grad():
        in_place.get_parameter(name).copy_(replaced[name])
    expected = in_place(x)
    assert (expected - layer(x)).abs().max() > 1e-3

    torch.testing.assert_close(functional_call(layer, replaced, (x,)), expected)
    assigned = deepcopy(layer)
    assigned.load_state_dict(replaced, assign=True)
    torch.testing.assert_close(assigned(x), expected)
    by_func = grad(lambda values: functional_call(layer, values, (x,)).square().sum())(replaced)
    expected.square().sum().backward()
    for key, value in in_place.named_parameters():
        torch.testing.assert_close(by_func[key], value.grad)
    assert by_func[name].abs().max() > 1e-6
