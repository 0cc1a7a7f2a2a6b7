"""Transformer against torch's on copied weights; decoding with caches; what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import Transformer

WORDS = Transformer.Config(source_vocab=13, target_vocab=11, layers=2, heads=2, width=16)


def theirs(**options):
    torch.manual_seed(0)
    sizes = {
        "d_model": 16, "nhead": 4, "num_encoder_layers": 3, "num_decoder_layers": 2, "dim_feedforward": 20,
        "dropout": 0.0, "batch_first": True, "dtype": torch.float64,
    }  # fmt: skip
    model = nn.Transformer(**sizes | options).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def pair(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    src = torch.randn(3, 7, 16, generator=generator, dtype=dtype)
    return src, torch.randn(3, 5, 16, generator=generator, dtype=dtype)


def causal(n, dtype=torch.float64):
    return nn.Transformer.generate_square_subsequent_mask(n, dtype=dtype)


SRC_PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3, [False] * 1 + [True] * 6])
TGT_PADDING = torch.tensor([[False] * 5, [False] * 5, [False] * 2 + [True] * 3])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("padded", [False, True])
def test_outputs_and_gradients_equal_those_of_torch(norm_first, activation, padded):
    torch_model = theirs(norm_first=norm_first, activation=activation, layer_norm_eps=1e-4).train()
    ours = Transformer.from_torch(torch_model)
    assert ours.training
    src, tgt = pair()
    masks = {}
    if padded:
        masks = {"src_key_padding_mask": SRC_PADDING, "tgt_key_padding_mask": TGT_PADDING}
    got = ours(src, tgt, **masks)
    more = {"memory_key_padding_mask": SRC_PADDING} if padded else {}
    expected = torch_model(src, tgt, tgt_mask=causal(5), **masks, **more)
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)
    for out in (got, expected):
        out.square().sum().backward()
    fused = torch_model.decoder.layers[1].multihead_attn.in_proj_weight.grad
    mine = torch.cat([getattr(ours.decoder[1].cross, name).weight.grad for name in "QKV"])
    torch.testing.assert_close(mine, fused, atol=1e-9, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_single_precision_and_torchs_default_layout():
    torch_model = theirs(dtype=torch.float32, batch_first=False)
    src, tgt = pair(torch.float32)
    expected = torch_model(src.transpose(0, 1), tgt.transpose(0, 1), tgt_mask=causal(5, torch.float32))
    got = Transformer.from_torch(torch_model)(src, tgt)
    torch.testing.assert_close(got, expected.transpose(0, 1), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_other_kinds_of_transformer_are_refused():
    with pytest.raises(ParameterError, match="relu and gelu"):
        Transformer.from_torch(theirs(activation=nn.SiLU()))
    with pytest.raises(ParameterError, match="bias=False"):
        Transformer.from_torch(theirs(bias=False))
    with pytest.raises(ParameterError, match="own encoder and decoder"):
        Transformer.from_torch(theirs(custom_encoder=nn.Identity()))
    with pytest.raises(ParameterError, match="got Linear"):
        Transformer.from_torch(nn.Linear(2, 2))


def words(batch=3, n=6, vocab=13):
    return torch.randint(vocab, (batch, n), generator=torch.Generator().manual_seed(2))


def large(config=WORDS):
    torch.manual_seed(0)
    model = Transformer(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_cache_changes_no_token(norm_first):
    model = large(Transformer.Config(13, 11, 2, 2, 16, norm_first=norm_first))
    padding = torch.tensor([[False] * 6, [False] * 2 + [True] * 4, [False] * 5 + [True]])
    targets = torch.full((3, 1), 1)
    for _ in range(9):
        logits = model(words(), targets, padding)
        targets = torch.cat([targets, logits[:, -1:].argmax(-1)], dim=1)
    got = model.generate(words(), 9, start=1, src_key_padding_mask=padding)
    assert torch.equal(got, targets[:, 1:])
    assert torch.equal(model.generate(words()[0], 9, start=1), got[0])

    end = int(got[0, 2])
    ended = model.generate(words(), 9, start=1, end=end, src_key_padding_mask=padding)
    for free, stopped in zip(got.tolist(), ended.tolist(), strict=True):
        keep = free.index(end) if end in free else len(free)
        assert stopped == free[:keep] + [end] * (9 - keep)


def test_the_past_does_not_know_the_future_and_padding_is_never_read():
    model = large()
    targets = words(3, 5, 11)
    other = targets.clone()
    other[:, 3] = (other[:, 3] + 1) % 11
    a, b = model(words(), targets), model(words(), other)
    assert torch.equal(a[:, :3], b[:, :3])
    assert not torch.allclose(a[:, 3:], b[:, 3:])
    padding = torch.tensor([[False] * 4 + [True] * 2] * 3)
    torch.testing.assert_close(
        model(words(), targets, padding), model(words()[:, :4], targets), atol=1e-12, rtol=0
    )


def test_saved_and_loaded(tmp_path):
    model = large()
    model.save(tmp_path / "transformer.safetensors")
    again = Transformer.load(tmp_path / "transformer.safetensors").eval()
    assert torch.equal(again(words(), words(3, 4, 11)), model(words(), words(3, 4, 11)))
    assert again.relation == {"encoder": er.Full(), "decoder": er.Causal(), "cross": er.Full()}


def test_wrong_calls_say_what_is_wrong():
    for options, message in (
        ({"source_vocab": None}, "both vocabularies, or neither"),
        ({"width": 15}, "width"),
        ({"activation": "tanh"}, "relu, gelu"),
        ({"layers": 0}, "layers"),
    ):
        sizes = {"source_vocab": 5, "target_vocab": 5, "layers": 1, "heads": 1, "width": 16}
        with pytest.raises(ParameterError, match=message):
            Transformer.Config(**sizes | options)
    model = Transformer(WORDS)
    with pytest.raises(ShapeError, match="src takes ids"):
        model(torch.zeros(2, 3, 16), words(2, 3, 11))
    with pytest.raises(ShapeError, match="boolean"):
        model(words(), words(3, 4, 11), torch.zeros(3, 6))
    with pytest.raises(ShapeError, match="src_key_padding_mask marks"):
        model(words(), words(3, 4, 11), torch.zeros(3, 5, dtype=torch.bool))
    with pytest.raises(ShapeError, match="not as many items"):
        model(words(), words(2, 4, 11))
    vectors = Transformer(Transformer.Config(None, None, 1, 2, 16))
    with pytest.raises(ShapeError, match="takes vectors"):
        vectors(words(), words())
    with pytest.raises(ParameterError, match="needs vocabularies"):
        vectors.generate(words(), 3, start=0)
