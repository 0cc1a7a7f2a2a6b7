"""What is made of the pairs of a relation alone refuses relations whose log-weights it would lose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.attention.block_masks import mask_mod
from erlangen.errors import ErlangenError, ParameterError
from erlangen.integrations import masks
from erlangen.relations import WeightedRelation
from erlangen.relations.catalogue import kinds
from erlangen.testing.strategies import examples

N = 5
MADE_OF_PAIRS = [er.pack, masks.mask, masks.additive, masks.sdpa_arguments, mask_mod]


@pytest.mark.parametrize("make", MADE_OF_PAIRS)
@pytest.mark.parametrize("kind", sorted(kinds(WeightedRelation)))
@settings(max_examples=5)
@given(data=st.data())
def test_no_log_weights_are_lost(make, kind, data):
    weighted = data.draw(examples(kinds(WeightedRelation)[kind], N))
    with pytest.raises(ErlangenError, match="has log-weights"):
        make(weighted, N)


@pytest.mark.parametrize("make", MADE_OF_PAIRS)
def test_the_support_is_taken(make):
    with pytest.raises(ParameterError, match=r"take its support, Causal\(\)"):
        make(er.ALiBi(2), N)
    assert make(er.ALiBi(2).support, N) is not None


def test_attention_keeps_them():
    q = torch.randn(1, 2, N, 4)
    logits = q @ q.transpose(-2, -1) / 2 - torch.tensor([1, 2])[:, None, None] * (
        torch.arange(N)[:, None] - torch.arange(N)
    )
    causal = torch.ones(N, N, dtype=torch.bool).tril()
    wanted = logits.masked_fill(~causal, -torch.inf).softmax(-1) @ q
    assert torch.allclose(er.attend(q, q, q, er.ALiBi([1, 2])), wanted, atol=1e-5)
