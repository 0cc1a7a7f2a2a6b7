"""BERT against transformers' on copied weights, padded batches included."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

import erlangen as er
from erlangen.errors import ParameterError, ShapeError, SizeError
from erlangen.models import BERT
from erlangen.models.padded_batches import unpadded

IDS = torch.randint(1, 31, (3, 9), generator=torch.Generator().manual_seed(1))
RIGHT = torch.tensor([[1] * 9, [1] * 5 + [0] * 4, [1] * 1 + [0] * 8])
MIXED = torch.tensor([[0] * 3 + [1] * 6, [1, 0, 1, 1, 0, 0, 1, 1, 0], [1] * 9])
TYPES = torch.tensor([[0] * 4 + [1] * 5]).expand(3, 9)


def theirs(kind, **options):
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
        "intermediate_size": 20, "max_position_embeddings": 12,
    }  # fmt: skip
    model = kind(BertConfig(**sizes | options)).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("mask", [None, RIGHT, MIXED], ids=["unpadded", "right", "mixed"])
@pytest.mark.parametrize("types", [None, TYPES], ids=["one segment", "two segments"])
def test_hidden_states_equal_berts(mask, types):
    bert = theirs(BertModel)
    ours = BERT.from_transformers(bert)
    expected = bert(IDS, attention_mask=mask, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(ours(IDS, mask, types), expected, atol=1e-10, rtol=1e-10)
    single = bert.float()(IDS, attention_mask=mask, token_type_ids=types).last_hidden_state
    torch.testing.assert_close(ours.float()(IDS, mask, types), single, atol=1e-5, rtol=1e-5)


def test_logits_equal_those_of_the_masked_language_model(tmp_path):
    bert = theirs(BertForMaskedLM, layer_norm_eps=1e-5)
    bert.tie_weights()
    ours = BERT.from_transformers(bert)
    expected = bert(IDS, attention_mask=RIGHT).logits
    torch.testing.assert_close(ours.logits(IDS, RIGHT), expected, atol=1e-10, rtol=1e-10)
    bert.save_pretrained(tmp_path)
    assert torch.equal(BERT.from_transformers(tmp_path).logits(IDS), ours.logits(IDS))


def test_another_relation_is_kept_and_padding_taken_out_of_it():
    window = er.Window(2, lookahead=2)
    ours = BERT.from_transformers(theirs(BertModel), relation=window)
    assert ours.relation == window
    torch.testing.assert_close(ours(IDS, RIGHT)[1, :5], ours(IDS[1, :5]), atol=1e-12, rtol=0)
    assert not torch.allclose(ours(IDS), BERT.from_transformers(theirs(BertModel))(IDS))


def test_masks_become_relations():
    assert unpadded(er.Full(), None, IDS) == er.Full()
    assert unpadded(er.Causal(), torch.ones(3, 9), IDS) == er.Causal()
    assert unpadded(er.Full(), RIGHT, IDS) == er.Batch([er.Full(), er.Padding(5), er.Padding(1)])
    left = er.Padding(6, side="left")
    assert unpadded(er.Full(), MIXED, IDS) == er.Batch([left, er.Global(keys=[0, 2, 3, 6, 7]), er.Full()])
    heads = unpadded(er.PerHead([er.Full(), er.Causal()]), RIGHT, IDS)
    assert heads[1] == er.PerHead([er.Padding(5), er.Causal() & er.Padding(5)])
    with pytest.raises(ShapeError, match="attention_mask"):
        unpadded(er.Full(), torch.ones(3, 8), IDS)


@pytest.mark.parametrize("option", [{"hidden_act": "relu"}, {"is_decoder": True}])
def test_other_kinds_of_bert_are_refused(option):
    with pytest.raises(ParameterError, match=next(iter(option))):
        BERT.from_transformers(theirs(BertModel, **option))


def test_saved_and_loaded(tmp_path):
    model = BERT(BERT.Config(31, 12, 2, 2, 8, relation=er.Window(2, 2), head=False)).eval()
    model.save(tmp_path / "bert.safetensors")
    again = BERT.load(tmp_path / "bert.safetensors").eval()
    assert torch.equal(again(IDS, RIGHT), model(IDS, RIGHT))


def test_wrong_calls_say_what_is_wrong():
    model = BERT(BERT.Config(31, 8, 1, 2, 8, head=False))
    with pytest.raises(SizeError, match="context=8, but 9"):
        model(IDS)
    with pytest.raises(ParameterError, match="head=False"):
        model.logits(IDS[:, :8])
    with pytest.raises(ShapeError, match="ids of shape"):
        model(IDS[None])
