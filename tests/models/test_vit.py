"""ViT against transformers' on copied weights; its relations, class token included; and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTModel

import erlangen as er
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import ViT
from erlangen.models.vit import with_class_token

SIZES = {"image_size": 8, "patch_size": 2, "channels": 1, "layers": 2, "heads": 2, "width": 16, "classes": 5}


def theirs(kind, **options):
    torch.manual_seed(0)
    sizes = {
        "image_size": 12, "patch_size": 4, "num_channels": 2, "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 20, "num_labels": 5,
    }  # fmt: skip
    model = kind(ViTConfig(**sizes | options)).eval().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def images():
    return torch.randn(3, 2, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_features_and_logits_equal_those_of_transformers():
    base, classifier = theirs(ViTModel), theirs(ViTForImageClassification, layer_norm_eps=1e-3)
    ours = ViT.from_transformers(base)
    torch.testing.assert_close(
        ours.features(images()), base(images()).last_hidden_state, atol=1e-10, rtol=1e-10
    )
    ours = ViT.from_transformers(classifier)
    torch.testing.assert_close(ours(images()), classifier(images()).logits, atol=1e-10, rtol=1e-10)
    ours, single = ours.float(), classifier.float()
    torch.testing.assert_close(ours(images().float()), single(images().float()).logits, atol=1e-5, rtol=1e-5)


def test_checkpoint_directories_are_read(tmp_path):
    classifier = theirs(ViTForImageClassification)
    classifier.save_pretrained(tmp_path)
    assert torch.equal(ViT.from_transformers(tmp_path)(images()), ViT.from_transformers(classifier)(images()))


def test_other_kinds_of_vit_are_refused():
    with pytest.raises(ParameterError, match="hidden_act='relu'"):
        ViT.from_transformers(theirs(ViTModel, hidden_act="relu"))
    with pytest.raises(ParameterError, match="qkv_bias"):
        ViT.from_transformers(theirs(ViTModel, qkv_bias=False))


def expected_mask(relation, patches):
    mask = np.ones((patches + 1, patches + 1), bool)
    mask[1:, 1:] = relation.on(patches).dense()
    return mask


@pytest.mark.parametrize(
    "relation",
    [er.Full(), er.Window(lookback=3), er.Grid((4, 4), 1), er.Causal(), er.Blocks(4), er.Ring(1, 1)],
)
def test_the_class_token_reads_and_is_read_and_patches_keep_their_relation(relation):
    got = with_class_token(relation, 16).on(17).dense()
    assert np.array_equal(got, expected_mask(relation, 16))


def test_the_strided_relation_keeps_its_name():
    assert with_class_token(er.Window(3), 16) == er.Window(3) | er.Global(keys=[0], queries=[0])
    assert with_class_token(er.PerHead([er.Full(), er.Window(3)]), 16)[0] == er.Full()


def test_a_patch_moves_exactly_the_patches_that_read_it():
    """One layer, read at the patches: the flow of information is the relation."""
    torch.manual_seed(0)
    model = ViT(ViT.Config(**SIZES | {"layers": 1}, relation=er.Grid((4, 4), 1))).double().eval()
    still = torch.randn(1, 1, 8, 8, dtype=torch.float64)
    before = model.features(still)
    for patch in (0, 5, 11):
        moved = still.clone()
        row, column = divmod(patch, 4)
        moved[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2] += 1.0
        changed = (model.features(moved) - before).abs().amax(-1)[0] > 1e-12
        assert np.array_equal(changed.numpy(), expected_mask(er.Grid((4, 4), 1), 16)[:, patch + 1])


def test_saved_with_its_relation(tmp_path):
    model = ViT(ViT.Config(**SIZES, relation=er.Grid((4, 4), 1))).eval()
    model.save(tmp_path / "vit.safetensors")
    again = ViT.load(tmp_path / "vit.safetensors").eval()
    x = torch.randn(2, 1, 8, 8)
    assert again.relation == model.relation
    assert torch.equal(again(x), model(x))


def test_wrong_calls_say_what_is_wrong():
    with pytest.raises(ParameterError, match="patches of 3 pixels do not tile an image of 8"):
        ViT.Config(**SIZES | {"patch_size": 3})
    with pytest.raises(ShapeError, match=r"takes images \(batch, 1, 8, 8\), got \(8, 8\)"):
        ViT(ViT.Config(**SIZES))(torch.zeros(8, 8))
    with pytest.raises(ParameterError, match="no head"):
        ViT(ViT.Config(**SIZES | {"classes": None}))(torch.zeros(1, 1, 8, 8))
