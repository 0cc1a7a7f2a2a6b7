"""What stands beside a sequence: labels fed to a decoder, masks of an encoder or of choices, indices,
positions of documents, and losses of one row less. Each with a faulty twin."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import AtMost, audit

transformers = pytest.importorskip("transformers")
T5 = {"encoder.*": er.Full(), "*EncDecAttention": er.Full(), "decoder.*": er.Causal()}
SMALL = {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


def ids(*shape, seed=0):
    return torch.randint(5, 60, shape, generator=torch.Generator().manual_seed(seed))


def t5(cls, layers=1):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": layers, "num_heads": 4, "d_ff": 64}
    return cls(transformers.T5Config(vocab_size=60, decoder_start_token_id=0, **sizes)).eval()


def llama(cls, layers=1, **more):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_key_value_heads=2, **SMALL, **more)
    return cls(config).eval()


class Unshifted(transformers.T5ForConditionalGeneration):
    """The decoder is fed the label that it predicts."""

    def _shift_right(self, labels):
        return labels


class Unmasked(transformers.T5ForConditionalGeneration):
    """The encoder's mask is forgotten."""

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        return super().forward(input_ids=input_ids, labels=labels)


@pytest.mark.parametrize("count", [9, 12])
def test_labels_may_be_fed_to_a_decoder_one_step_late(count):
    inputs = {"input_ids": ids(2, 12), "labels": ids(2, count, seed=1)}
    assert audit(t5(transformers.T5ForConditionalGeneration), inputs, T5, variants=False).verdict == "holds"
    assert audit(t5(Unshifted), inputs, T5, variants=False).verdict != "holds"


def test_an_encoders_mask_is_not_held_against_a_decoder_of_equal_length():
    inputs = {"input_ids": ids(2, 12), "labels": ids(2, 12, seed=1)}
    for cls, verdict in ((transformers.T5ForConditionalGeneration, "holds"), (Unmasked, "violated")):
        assert audit(t5(cls, 2), inputs, T5, feedings=["padded left"]).verdict == verdict


class Mixed(transformers.T5Model):
    """The encoder's rows are given out with the decoder's in them."""

    def forward(self, input_ids=None, decoder_input_ids=None):
        out = super().forward(input_ids=input_ids, decoder_input_ids=decoder_input_ids)
        out.encoder_last_hidden_state = out.encoder_last_hidden_state + out.last_hidden_state.mean(1, True)
        return out


def test_an_encoder_does_not_move_with_a_decoder_of_equal_length():
    inputs = {"input_ids": ids(2, 12), "decoder_input_ids": ids(2, 12, seed=1)}
    assert audit(t5(transformers.T5Model), inputs, T5, feedings=["training"]).verdict == "holds"
    assert audit(t5(Mixed), inputs, T5, feedings=["training"]).verdict != "holds"


class FirstMask(transformers.BertForMultipleChoice):
    """All choices are padded like the first one."""

    def forward(self, input_ids=None, attention_mask=None):
        mask = attention_mask[:, :1].expand_as(attention_mask).contiguous()
        return super().forward(input_ids=input_ids, attention_mask=mask)


def test_each_choice_may_have_padding_of_its_own():
    mask = torch.ones(2, 3, 10, dtype=torch.long)
    mask[1, 0, 8:], mask[1, 1, 5:] = 0, 0
    for cls, verdict in ((transformers.BertForMultipleChoice, "holds"), (FirstMask, "violated")):
        torch.manual_seed(0)
        model = cls(transformers.BertConfig(num_hidden_layers=1, **SMALL)).eval()
        inputs = {"input_ids": ids(2, 3, 10), "attention_mask": mask}
        assert audit(model, inputs, er.Full(), feedings=["training"]).verdict == verdict


class Averaged(transformers.GPT2DoubleHeadsModel):
    """Every row is given the mean of all."""

    def forward(self, input_ids=None, mc_token_ids=None):
        out = super().forward(input_ids=input_ids, mc_token_ids=mc_token_ids)
        return out.logits + out.logits.mean(2, keepdim=True)


def test_an_index_for_each_choice_is_no_sequence():
    inputs = {"input_ids": ids(2, 2, 12), "mc_token_ids": torch.full((2, 2), 11)}
    for cls, verdict in ((transformers.GPT2DoubleHeadsModel, "holds"), (Averaged, "violated")):
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=60, n_embd=32, n_layer=1, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0
        )
        assert audit(cls(config).eval(), inputs, er.Causal(), feedings=["training"]).verdict == verdict


class Forgets(transformers.LlamaForSequenceClassification):
    """The mask is forgotten."""

    def forward(self, input_ids=None, attention_mask=None, position_ids=None):
        return super().forward(input_ids=input_ids, position_ids=position_ids)


def test_a_token_that_tells_the_last_row_is_no_padding_of_its_own():
    for cls, verdict in ((transformers.LlamaForSequenceClassification, "holds"), (Forgets, "violated")):
        model = llama(cls, pad_token_id=0, num_labels=1)
        assert (
            audit(model, {"input_ids": ids(2, 12)}, er.Causal(), feedings=["padded left"]).verdict == verdict
        )


def test_positions_of_documents_that_a_mask_would_switch_off_are_not_padded():
    positions = torch.tensor([[*range(5), *range(7)]])
    inputs = {"input_ids": ids(1, 12), "position_ids": positions, "use_cache": False}
    expect = er.Causal() & er.Documents([5, 7])
    report = audit(llama(transformers.LlamaModel), inputs, expect, feedings=["padded"])
    assert report.verdict == "holds"
    assert "attention_mask" in report.not_tried["padded"]
    straight = inputs | {"position_ids": torch.arange(12)[None]}
    assert audit(llama(transformers.LlamaModel), straight, expect, feedings=["padded"]).verdict == "violated"


class Last(nn.Module):
    """The last three rows of a decoder, which may read the mean of all."""

    def __init__(self, bad):
        super().__init__()
        self.embed, self.qkv, self.bad = nn.Embedding(60, 16), nn.Linear(16, 48), bad

    def forward(self, ids, attention_mask=None):
        x = self.embed(ids)
        n, (q, k, v) = ids.shape[1], self.qkv(x).chunk(3, -1)
        mask = torch.ones(n, n).tril().bool() | torch.eye(n).bool()
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, :].bool() | torch.eye(n).bool()
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (x + x.mean(1, keepdim=True) if self.bad else x)[:, -3:]


def test_the_last_rows_may_be_rows_of_padding():
    for bad, verdict in ((False, "holds"), (True, "violated")):
        torch.manual_seed(0)
        report = audit(
            Last(bad).eval(), {"ids": ids(2, 12)}, er.Causal(), feedings=["shorter", "padded right"]
        )
        assert report.verdict == verdict


class LossAlone(nn.Module):
    """Heads of 16 features, in tensors of (batch x heads, n, 16), and the loss of all tokens but the last."""

    def __init__(self, bad):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(60, 32), nn.Linear(32, 96), nn.Linear(32, 60)
        self.bad = bad

    def forward(self, x):
        given, wanted = x[:, :-1], x[:, 1:]
        h = self.embed(given)
        q, k, v = (
            part.unflatten(-1, (2, 16)).transpose(1, 2).flatten(0, 1) for part in self.qkv(h).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not self.bad)
        h = h + y.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)
        return F.cross_entropy(self.out(h).transpose(1, 2), wanted)


@pytest.mark.parametrize("n", [16, 25])
def test_a_loss_of_all_rows_but_one_is_judged_by_these(n):
    for bad, verdict in ((False, "holds"), (True, "violated")):
        torch.manual_seed(0)
        report = audit(LossAlone(bad).eval(), {"x": ids(2, n)}, AtMost(er.Causal()), feedings=["shorter"])
        assert report.verdict == verdict, [one.reason for one in report.open]
