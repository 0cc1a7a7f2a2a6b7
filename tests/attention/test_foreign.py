"""Arguments of SDPA, FlashAttention and torch.nn: refused with the word for them, or read as meant there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.attention.foreign import WORDS
from erlangen.errors import ParameterError

Q = torch.randn(2, 2, 5, 4, dtype=torch.double)
MASK = torch.ones(5, 5, dtype=torch.bool).tril()


@pytest.mark.parametrize("name", WORDS)
def test_foreign_arguments_are_refused_with_their_word_here(name):
    with pytest.raises(ParameterError, match=rf"attend takes no {name}=: (write|leave)"):
        er.attend(Q, Q, Q, **{name: 0.25})


def test_the_words_name_what_to_write():
    with pytest.raises(ParameterError, match=r"relation=FromMask\(mask\)"):
        er.attend(Q, Q, Q, attn_mask=MASK)  # pyright: ignore
    with pytest.raises(ParameterError, match=r"write dropout=0\.25"):
        er.attend(Q, Q, Q, dropout_p=0.25)  # pyright: ignore
    with pytest.raises(ParameterError, match=r"got Tensor; for a mask, write relation=FromMask\(mask\)"):
        er.attend(Q, Q, Q, MASK)  # pyright: ignore
    with pytest.raises(ParameterError, match=r"Attention takes no attn_mask=: write relation=FromMask"):
        er.Attention(4)(torch.randn(5, 4), attn_mask=MASK)
    with pytest.raises(TypeError, match="unexpected keyword argument 'relatoin'"):
        er.attend(Q, Q, Q, relatoin=er.Causal())  # pyright: ignore


def twins(relation=None):
    """torch.nn's layer and ours, with the same weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, bias=False, batch_first=True, dtype=torch.double)
    ours = er.Attention(8, num_heads=2, relation=relation).double()
    q, k, v = theirs.in_proj_weight.detach().chunk(3)
    for layer, weight in ((ours.Q, q), (ours.K, k), (ours.V, v), (ours.O, theirs.out_proj.weight.detach())):
        layer.weight.data.copy_(weight)
    return theirs, ours


PADDED = torch.tensor([[False, False, False, True, True], [True, False, False, False, True]])


@pytest.mark.parametrize("causal", [False, True])
def test_key_padding_mask_means_what_it_means_in_torch(causal):
    theirs, ours = twins(er.Causal() if causal else None)
    x = torch.randn(2, 5, 8, dtype=torch.double)
    expected, _ = theirs(x, x, x, key_padding_mask=PADDED, attn_mask=~MASK if causal else None)
    out = ours(x, key_padding_mask=PADDED)
    rows = ~expected.isnan().any(-1)  # a query that reads nothing is NaN in torch, and zero here
    torch.testing.assert_close(out[rows], expected[rows])
    assert not out[~rows].any()
    assert rows.all() == (not causal)
    assert not torch.allclose(ours(x, key_padding_mask=~PADDED)[rows], expected[rows])
    assert torch.equal(ours(x, key_padding_mask=torch.zeros_like(PADDED)), ours(x))


def test_key_padding_mask_of_a_context_and_without_a_batch():
    theirs, ours = twins()
    x, context = torch.randn(2, 3, 8, dtype=torch.double), torch.randn(2, 5, 8, dtype=torch.double)
    expected, _ = theirs(x, context, context, key_padding_mask=PADDED)
    torch.testing.assert_close(ours(x, context, key_padding_mask=PADDED), expected)
    torch.testing.assert_close(ours(x[1], context[1], key_padding_mask=PADDED[1]), expected[1])


@pytest.mark.parametrize(
    "relation",
    [
        er.PerHead([er.Causal(), er.Full()]),
        er.Batch([er.Causal(), er.Window(1)]),
        er.Causal().on(5),
        er.ALiBi(slopes=[0.5, 0.25]),
    ],
    ids=["heads", "batch", "neighborhoods", "weighted"],
)
def test_key_padding_mask_with_every_kind_of_relation(relation):
    _, ours = twins()
    x = torch.randn(2, 5, 8, dtype=torch.double)
    _, plain = ours(x, relation=relation, need_weights=True)
    _, weights = ours(x, relation=relation, key_padding_mask=PADDED, need_weights=True)
    expected = plain * ~PADDED[:, None, None]
    expected = (expected / expected.sum(-1, keepdim=True)).nan_to_num()
    torch.testing.assert_close(weights, expected)


def test_key_padding_mask_while_decoding():
    _, ours = twins(er.Causal())
    x = torch.randn(2, 5, 8, dtype=torch.double)
    whole, cache = ours(x, key_padding_mask=PADDED), er.KVCache()
    with pytest.raises(ParameterError, match=r"booleans \(2, 1\).*got torch.bool \(2, 5\)"):
        ours(x[:, :1], key_padding_mask=PADDED, cache=cache)
    steps = [ours(x[:, t : t + 1], key_padding_mask=PADDED[:, : t + 1], cache=cache) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(2, 5), "torch.float32"),
        (torch.ones(2, 5, dtype=torch.long), "torch.int64.*pass attention_mask == 0"),
        (PADDED[:1], r"booleans \(2, 5\).* got torch.bool \(1, 5\)"),
        ([[True]], "got .*True"),
    ],
)
def test_what_may_be_of_the_other_meaning_is_refused(mask, message):
    with pytest.raises(ParameterError, match=message):
        er.Attention(8)(torch.randn(2, 5, 8), key_padding_mask=mask)
