"""`torch.jit.trace`: the program computes what the function does on other inputs, too, or is refused."""

from __future__ import annotations

import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError

RELATIONS = [
    er.Causal(),
    er.Window(2),
    er.PerHead([er.Causal(), er.Full()]),
    er.Graph([(0, 3), (5, 1)], nodes=16),
]


def fresh() -> torch.Tensor:
    return torch.randn(1, 2, 16, 8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("relation", RELATIONS, ids=repr)
def test_a_trace_computes_on_other_inputs(relation, grad):
    def attention(q):
        return er.attend(q, q, q, relation)

    traced = torch.jit.trace(attention, (fresh().requires_grad_(grad),))
    q = fresh()
    torch.testing.assert_close(traced(q), attention(q), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_layer_and_a_decoding_step_can_be_traced():
    layer = er.Attention(16, num_heads=2, relation=er.Causal()).eval()
    with torch.no_grad():
        traced = torch.jit.trace(layer, (torch.randn(1, 9, 16),))
        x = torch.randn(1, 9, 16)
        torch.testing.assert_close(traced(x), layer(x))

        def step(q):
            return er.attend(q[:, :, -1:], q, q, er.Window(2))

        traced = torch.jit.trace(step, (fresh(),))
        q = fresh()
        torch.testing.assert_close(traced(q), step(q))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_relations_that_depend_on_the_data_are_refused():
    with pytest.raises(ParameterError, match="depends on the data"):
        torch.jit.trace(lambda q: er.attend(q, q, q, er.Nearest(3)), (fresh(),))
