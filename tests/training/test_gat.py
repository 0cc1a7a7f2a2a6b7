"""The recipe for GAT: it learns, stops, keeps what it should, and resumes with the same losses."""

from __future__ import annotations

import pytest

from erlangen.errors import DataError
from erlangen.models import GAT
from erlangen.training.gat import example, gat_run, judged, rightly_classified, train_gat
from erlangen.training.recipes import GATRecipe
from erlangen.training.trainer import train


def seen(*pairs):
    return [{"validation": loss, "accuracy": accuracy} for loss, accuracy in pairs]


def test_it_learns_an_easy_network_and_leaves_a_model(tmp_path):
    data = example()
    summary = train_gat(data, tmp_path, GATRecipe(steps=60))
    assert summary["test_accuracy"] == 1.0
    assert rightly_classified(GAT.load(tmp_path / "model.safetensors").eval(), data) == 1.0
    assert {"loss.png", "summary.json", "history.json"} <= {path.name for path in tmp_path.iterdir()}


def test_the_seed_decides_everything():
    losses = [train(gat_run(example(), GATRecipe(steps=4, seed=seed))).losses for seed in (1, 1, 2)]
    assert losses[0] == losses[1] != losses[2]


def test_a_finished_run_is_resumed_with_its_losses_and_not_with_other_settings(tmp_path):
    path, recipe = tmp_path / "checkpoint.safetensors", GATRecipe(steps=6)
    losses = train(gat_run(example(), recipe), path).losses
    assert train(gat_run(example(), recipe), path, resume=True).losses == losses
    with pytest.raises(DataError, match="heads is 8 there and 4 here"):
        train(gat_run(example(), GATRecipe(steps=6, heads=4)), path, resume=True)


def test_patience_counts_from_the_last_best_of_either():
    assert not judged(seen((1.0, 0.5), (1.2, 0.4), (1.1, 0.5)), patience=2).stop
    assert not judged(seen((1.0, 0.5), (1.2, 0.4)), patience=2).stop
    assert judged(seen((1.0, 0.5), (1.2, 0.4), (1.1, 0.4)), patience=2).stop


def test_weights_are_kept_only_when_both_are_the_best():
    assert judged(seen((1.0, 0.5)), patience=9).keep
    assert judged(seen((1.0, 0.5), (1.0, 0.5)), patience=9).keep
    assert not judged(seen((1.0, 0.5), (0.9, 0.4)), patience=9).keep
    assert not judged(seen((1.0, 0.5), (1.1, 0.6)), patience=9).keep
