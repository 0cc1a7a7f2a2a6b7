"""Saving and loading: what comes back is what was saved; what does not fit is refused with a reason."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from contextlib import suppress
from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import erlangen as er
from erlangen.errors import DataError, ParameterError
from erlangen.models import GPT
from erlangen.models.saved import Saved, read_tensors

CONFIG = GPT.Config(11, 8, 2, 2, 8, relation=er.PerHead([er.Causal(), er.Window(2)]))


def test_what_is_loaded_is_what_was_saved(tmp_path):
    model = GPT(CONFIG).double()
    model.save(tmp_path / "gpt.safetensors", {"note": "a"})
    again = GPT.load(tmp_path / "gpt.safetensors")
    assert again.config == CONFIG
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert again.state_dict()[name].dtype == torch.float64
    assert all(parameter.requires_grad for parameter in again.parameters())
    tensors, metadata = read_tensors(tmp_path / "gpt.safetensors")
    assert metadata["note"] == "a"
    assert json.loads(metadata["erlangen"])["model"] == "GPT"
    assert "tokens.weight" in tensors


def test_a_relation_too_large_for_text_is_refused(tmp_path):
    generator = torch.Generator().manual_seed(0)
    large = er.FromMask(torch.rand(200, 200, generator=generator).tril() > 0.5)
    model = GPT(GPT.Config(11, 200, 1, 2, 8, relation=large))
    with pytest.raises(ParameterError, match="too large"):
        model.save(tmp_path / "gpt.safetensors")
    with pytest.raises(DataError, match="no such directory"):
        model.save(tmp_path / "none" / "gpt.safetensors")
    with pytest.raises(ParameterError, match="name it otherwise"):
        GPT(CONFIG).save(tmp_path / "gpt.safetensors", {"erlangen": "mine"})


def test_files_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "gpt.safetensors"
    with pytest.raises(DataError, match="no such file"):
        GPT.load(path)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match="not a safetensors file"):
        GPT.load(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(DataError, match=r"not one written by GPT.save"):
        GPT.load(path)

    GPT(CONFIG).save(path)
    tensors, metadata = read_tensors(path)
    about = json.loads(metadata["erlangen"])
    for changed, message in (
        (about | {"model": "ViT"}, "holds a ViT; use ViT.load"),
        ({"model": "GPT"}, "cannot be read"),
        (about | {"config": about["config"] | {"colour": 1}}, "cannot be read"),
    ):
        save_file(tensors, path, {"erlangen": json.dumps(changed)})
        with pytest.raises(DataError, match=message):
            GPT.load(path)
    save_file(tensors | {"norm.weight": torch.zeros(9)}, path, metadata)
    with pytest.raises(DataError, match=r"norm.weight has shape \(9,\), expected \(8,\)"):
        GPT.load(path)
    del tensors["norm.weight"]
    save_file(tensors, path, metadata)
    with pytest.raises(DataError, match=r"missing \['norm.weight'\]"):
        GPT.load(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"layers": 10**9},
        {"width": 2**40},
        {"context": 10**15},
        {"vocab_size": 10**18},
        {"vocab_size": -1},
        {"layers": 1.5},
        {"width": "8"},
        {"heads": 0},
        {"context": 200_000_000},
        {"context": -(2**40)},
        {"hidden": 10**300},
        *({"norm_eps": value} for value in (None, "1", [1.0], True, -1.0, float("nan"), float("inf"))),
        {"norm_eps": {"relation": "Causal()"}},
        {"dropout": float("nan")},
    ],
    ids=str,
)
def test_configurations_of_any_size_are_refused_before_memory_is_asked_for(tmp_path, changed):
    path = tmp_path / "gpt.safetensors"
    GPT(CONFIG).save(path)
    tensors, metadata = read_tensors(path)
    about = json.loads(metadata["erlangen"])
    about["config"] |= changed
    save_file(tensors, path, {"erlangen": json.dumps(about)})
    tracemalloc.start()
    with pytest.raises(DataError, match=r"GPT|has shape|does not fit|for (norm_eps|dropout), got"):
        GPT.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


@pytest.fixture
def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=31, n_positions=8, n_embd=16, n_layer=2, n_head=2)).eval()


@pytest.mark.parametrize("shards", ["10GB", "4KB"])
def test_checkpoint_directories_are_read(gpt2, tmp_path, shards):
    gpt2.save_pretrained(tmp_path, max_shard_size=shards)
    assert (tmp_path / "model.safetensors.index.json").is_file() == (shards == "4KB")
    ours = GPT.from_transformers(tmp_path)
    assert torch.equal(ours(torch.arange(8)), GPT.from_transformers(gpt2)(torch.arange(8)))
    assert not ours.training
    assert torch.equal(GPT.from_transformers(str(tmp_path))(torch.arange(8)), ours(torch.arange(8)))


def test_directories_that_cannot_be_read_are_refused(gpt2, tmp_path):
    with pytest.raises(DataError, match="no such directory"):
        GPT.from_transformers(tmp_path / "none")
    with pytest.raises(DataError, match=r"config.json: no such file"):
        GPT.from_transformers(tmp_path)
    gpt2.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match="found neither"):
        GPT.from_transformers(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(DataError, match=r"pickle .pytorch_model.bin., which is never loaded"):
        GPT.from_transformers(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "../elsewhere.safetensors"}}'
    )
    with pytest.raises(DataError, match="outside the directory"):
        GPT.from_transformers(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DataError, match="expected a JSON object"):
        GPT.from_transformers(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DataError, match="not a JSON file"):
        GPT.from_transformers(tmp_path)


def test_other_models_are_refused(gpt2, tmp_path):
    bert = BertModel(BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(ParameterError, match="BertModel is a model of type 'bert', expected 'gpt2'"):
        GPT.from_transformers(bert)
    with pytest.raises(ParameterError, match="takes a Hugging Face model or the directory"):
        GPT.from_transformers(torch.nn.Linear(2, 2))
    gpt2.transformer.h[0].register_parameter("gate", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(ParameterError, match=r"tensors that GPT does not use: h.0.gate"):
        GPT.from_transformers(gpt2)
    del gpt2.transformer.h[0].ln_1
    with pytest.raises(DataError, match=r"no tensor 'h.0.ln_1.weight'"):
        GPT.from_transformers(gpt2)


TYPES = [
    getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64",
                 "complex64", "float8_e4m3fn", "float8_e5m2")
]  # fmt: skip


class Kinds(Saved):
    """A tensor of each kind of numbers that a state may hold."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        size: int = 2

    def __init__(self, config):
        super().__init__(config)
        self.real = torch.nn.Parameter(torch.zeros(config.size))
        self.complex = torch.nn.Parameter(torch.zeros(config.size, dtype=torch.complex64))
        for kind in (torch.int64, torch.bool):
            self.register_buffer(str(kind)[6:], torch.zeros(config.size, dtype=kind))


ALIKE = {
    "real": [torch.float16, torch.bfloat16, torch.float32, torch.float64],
    "complex": [torch.complex64],
    "int64": [torch.int64],
    "bool": [torch.bool],
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ALIKE)
def test_numbers_of_another_kind_are_refused_and_of_another_precision_kept(tmp_path, name, dtype):
    path = tmp_path / "kinds.safetensors"
    Kinds(Kinds.Config()).save(path)
    tensors, metadata = read_tensors(path)
    save_file(tensors | {name: torch.zeros(2, dtype=dtype)}, path, metadata)
    if dtype in ALIKE[name]:
        assert Kinds.load(path).state_dict()[name].dtype == dtype
        return
    expected = " or ".join(sorted(str(alike)[6:] for alike in ALIKE[name]))
    with pytest.raises(DataError, match=f"{name} has type {str(dtype)[6:]}, expected {expected}$"):
        Kinds.load(path)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.complex64], ids=str)
def test_a_checkpoint_of_another_kind_of_numbers_is_refused(gpt2, tmp_path, dtype):
    gpt2.save_pretrained(tmp_path)
    tensors, metadata = read_tensors(tmp_path / "model.safetensors")
    save_file({k: v.to(dtype) for k, v in tensors.items()}, tmp_path / "model.safetensors", metadata)
    with pytest.raises(DataError, match=f"has type {str(dtype)[6:]}, expected bfloat16 or float16 or"):
        GPT.from_transformers(tmp_path)


def rewritten(path, **changes):
    """A saved model with another configuration and the same tensors."""
    tensors, metadata = read_tensors(path)
    about = json.loads(metadata["erlangen"])
    about["config"] |= changes
    save_file(tensors, path, metadata={"erlangen": json.dumps(about)})


SMALL = {
    "GPT": GPT(CONFIG),
    "BERT": er.models.BERT(er.models.BERT.Config(11, 8, 1, 2, 8)),
    "T5": er.models.T5(er.models.T5.Config(11, 1, 2, 8)),
    "Transformer": er.models.Transformer(er.models.Transformer.Config(9, 9, 1, 2, 8)),
    "ViT": er.models.ViT(er.models.ViT.Config(8, 2, 1, 1, 2, 8, 3, relation=er.Grid((4, 4), 1))),
    "S4": er.models.S4(er.models.S4.Config(1, 1, 1, 4)),
    "SparseTransformer": er.models.SparseTransformer(er.models.SparseTransformer.Config(9, 8, 1, 2, 8, 2)),
    "Unlimiformer": er.models.Unlimiformer(er.models.Unlimiformer.Config(9, 8, 8, 1, 2, 8)),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("size", [50_000, 200_000_000, 2_000_000_000, 10**30])
def test_a_size_that_no_tensor_bears_out_is_refused_at_once(name, size, tmp_path):
    """Before a relation is bound at it, or a mask written: what is read may be of any size."""
    path = tmp_path / "model.safetensors"
    for field in fields(SMALL[name].config):
        if type(getattr(SMALL[name].config, field.name)) is not int:
            continue
        SMALL[name].save(path)
        rewritten(path, **{field.name: size})
        tracemalloc.start()
        try:
            with suppress(DataError):  # fields that say nothing of the tensors may be small enough
                type(SMALL[name]).load(path)
            assert tracemalloc.get_traced_memory()[1] < 100 << 20, field.name
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("relation", ["Window(3)", "Random(3000, 1)", "Dilated(2) & Random(50000, 1)"])
def test_a_relation_is_not_bound_at_a_size_of_a_file(relation, tmp_path):
    path = tmp_path / "gpt.safetensors"
    GPT(CONFIG).save(path)
    for context in (100_000, 1_000_000, 10**9):
        rewritten(path, relation={"relation": relation}, context=context)
        with pytest.raises(DataError):
            GPT.load(path)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    "value", [None, "1e-5", [1e-5], True, float("nan"), float("inf"), -1, {"relation": "Causal()"}], ids=str
)
def test_fractions_of_a_configuration_are_numbers_in_their_range(name, value, tmp_path):
    path, kind = tmp_path / "model.safetensors", type(SMALL[name])
    for field in ("norm_eps", "dropout"):
        if hasattr(SMALL[name].config, field):
            SMALL[name].save(path)
            rewritten(path, **{field: value})
            with pytest.raises(DataError, match=rf"{field}\) must be a number"):
                kind.load(path)
            if not isinstance(value, dict):
                with pytest.raises(ParameterError, match=rf"{name}.Config\({field}\)"):
                    replace(SMALL[name].config, **{field: value})
