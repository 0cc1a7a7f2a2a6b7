"""Checkpoints: what is saved comes back exactly, and what is no checkpoint is refused with a reason."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from erlangen.errors import DataError
from erlangen.training.checkpoint import load, packed, save, unpack


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
        lambda parameters: torch.optim.RAdam(parameters, lr=0.1),
    ],
)
def test_any_optimizer_comes_back(tmp_path, make):
    def after(steps, restore_at=None):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = make(model.parameters())
        for step in range(steps):
            if step == restore_at:
                tensors, facts = packed(optimizer)
                save(tmp_path / "a.safetensors", tensors, facts)
                optimizer = make(model.parameters())
                unpack(optimizer, *load(tmp_path / "a.safetensors"))
            optimizer.zero_grad()
            model(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
        return model.weight

    assert torch.equal(after(6), after(6, restore_at=3))


def test_tied_weights_and_views_are_saved(tmp_path):
    weight = torch.arange(6.0).view(2, 3)
    save(tmp_path / "a.safetensors", {"a": weight, "b": weight, "c": weight.T}, {"x": [1, None]})
    tensors, facts = load(tmp_path / "a.safetensors")
    assert torch.equal(tensors["a"], weight)
    assert torch.equal(tensors["b"], weight)
    assert torch.equal(tensors["c"], weight.T)
    assert facts == {"x": [1, None]}


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"not a checkpoint at all")
    with pytest.raises(DataError, match="is not a checkpoint, or is damaged"):
        load(path)
    save_file({"x": torch.ones(1)}, path)
    with pytest.raises(DataError, match="was not written by training"):
        load(path)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "a.safetensors"
    save(path, {"x": torch.ones(100)}, {})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match="damaged"):
        load(path)


def test_others_may_read_a_checkpoint_as_they_may_read_any_file(tmp_path):
    (tmp_path / "plain").touch()
    save(tmp_path / "a.safetensors", {"x": torch.ones(1)}, {})
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
