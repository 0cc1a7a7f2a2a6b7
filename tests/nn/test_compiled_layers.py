"""The general layer under `torch.compile` where what it reads is known at the call alone."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.exc import Unsupported

import erlangen as er
from erlangen.models import Unlimiformer

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore:The .grad attribute"
)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("weights", [False, True])
def test_padding(weights: bool) -> None:
    layer, x = er.Attention(16, 4, er.Causal()), torch.randn(2, 9, 16)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    compiled = torch.compile(layer, backend="eager")
    for last in (0, 3, 5):
        padding[0, :last] = True
        found, wanted = (f(x, key_padding_mask=padding, need_weights=weights) for f in (compiled, layer))
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("relation", [er.Causal(), er.Window(3), er.Causal() & er.Dilated(2)], ids=repr)
def test_decoding_with_a_cache(relation: er.Relation) -> None:
    layer, x = er.Attention(16, 4, relation), torch.randn(2, 9, 16)
    compiled, cache = torch.compile(layer, backend="eager"), er.KVCache()
    with torch.no_grad():
        steps = [compiled(x[:, i : i + 1], cache=cache) for i in range(9)]
        torch.testing.assert_close(torch.cat(steps, 1), layer(x))


def test_relations_that_depend_on_the_data_break_the_graph() -> None:
    layer, x = er.Attention(16, 4, er.Nearest(2)), torch.randn(2, 9, 16)
    for given in (x, x + 1):
        torch.testing.assert_close(torch.compile(layer, backend="eager")(given), layer(given))
    torch._dynamo.reset()
    with pytest.raises(Unsupported):
        torch.compile(layer, backend="eager", fullgraph=True)(x)


def test_unlimiformer() -> None:
    config = Unlimiformer.Config(vocab_size=50, chunk=32, context=8, layers=1, heads=2, width=16, k=4)
    model = Unlimiformer(config).eval()
    given = torch.randint(50, (1, 60)), torch.randint(50, (1, 8))
    torch.testing.assert_close(torch.compile(model, backend="eager")(*given), model(*given))
