"""Models that compute attention themselves do not take "erlangen" in silence."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path

import pytest
import torch

from erlangen.audit.targets import small
from erlangen.errors import ParameterError

transformers = pytest.importorskip("transformers")

from erlangen.integrations.transformers import register  # noqa: E402
from erlangen.integrations.transformers.past_the_registry import _past  # noqa: E402

IDS = torch.randint(40, (2, 6), generator=torch.Generator().manual_seed(0))
REFUSED = ["bloom", "mpt", "falcon", "gptj", "gpt_neo", "xlnet", "deberta-v2", "git"]


@pytest.fixture(autouse=True)
def _registered():
    register()
    transformers.logging.set_verbosity_error()


def build(family: str, **options):
    config = small(transformers.CONFIG_MAPPING[family])
    for name, value in options.items():
        setattr(config, name, value)
    return transformers.AutoModel.from_config(config).eval()


@pytest.mark.parametrize("family", REFUSED)
def test_a_model_past_the_registry_is_refused_when_it_is_built(family):
    """Falcon and GIT would end in a KeyError, the others keep their own attention and say nothing."""
    with pytest.raises(ParameterError, match=f"'{family}' compute attention themselves"):
        build(family, _attn_implementation="erlangen")


def test_falcon_with_alibi_too():
    with pytest.raises(ParameterError, match="'falcon' compute attention themselves"):
        build("falcon", alibi=True, _attn_implementation="erlangen")


@pytest.mark.parametrize("family", ["bloom", "falcon"])
def test_switching_leaves_the_model_as_it_was_and_says_so(family):
    model = build(family)
    before = model(IDS).last_hidden_state
    model.set_attn_implementation("erlangen")
    assert model.config._attn_implementation != "erlangen"
    assert torch.equal(model(IDS).last_hidden_state, before)


@pytest.mark.parametrize("family", ["bloom", "mpt"])
def test_a_configuration_changed_behind_the_model_is_refused_at_the_next_call(family):
    model = build(family)
    model.config._attn_implementation = "erlangen"
    with pytest.raises(ParameterError, match=f"'{family}' compute attention themselves"):
        model(IDS)


def test_a_model_of_the_registry_is_not_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = build("llama", _attn_implementation="erlangen")
    assert model(IDS).last_hidden_state.shape == (2, 6, 32)

    class Own(transformers.LlamaModel):
        pass

    Own(model.config)


def test_modules_that_stay_as_they_were_are_named():
    """LongT5 has the registry in its decoder; local attention of the encoder is its own."""
    local = "LongT5LocalAttention"
    with pytest.warns(
        UserWarning, match=rf"not on .erlangen. altogether: its .*{local}.*, where it has them"
    ):
        build("longt5", _attn_implementation="erlangen")
    model = build("longt5")
    with pytest.warns(UserWarning, match=f"its {local} computes attention past the registry"):
        model.set_attn_implementation("erlangen")


def test_every_file_of_transformers_with_attention_of_its_own_is_refused():
    """Read in the source of all models, without the rule: an attention class, and no word of the registry."""
    files = sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"))
    own, registered = [], []
    for file in files:
        text = file.read_text()
        name = f"transformers.models.{file.parent.name}.{file.stem}"
        table = re.search(r"^\w*ATTENTION_CLASSES = ", text, re.MULTILINE)
        if "ALL_ATTENTION_FUNCTIONS" in text and not table:
            registered.append(name)
        elif table or re.search(r"^class (?!\w*Output)\w*Attention\w*\(", text, re.MULTILINE):
            own.append(name)
    assert len(own) > 50
    assert len(registered) > 200
    silent = []
    for name in own:
        importlib.import_module(name)
        if not _past(name):
            silent.append(name)
    assert silent == []
    assert _past(importlib.import_module("transformers.models.timm_wrapper.modeling_timm_wrapper").__name__)
    for name in registered[::20]:
        importlib.import_module(name)
        assert not _past(name), name
