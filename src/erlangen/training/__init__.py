"""Training that can be interrupted: the loop, its checkpoints, and a recipe per model.

>>> from erlangen.training import Cosine
>>> Cosine(peak=1e-3, steps=100, warmup=10)(9)
0.001
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from erlangen.training.recipes import GATRecipe, GPTRecipe, ViTRecipe

if TYPE_CHECKING:
    from erlangen.training.batches import Places, Shuffled
    from erlangen.training.gat import gat_run, train_gat
    from erlangen.training.gpt import gpt_run, load_gpt, sample, train_gpt
    from erlangen.training.history import History
    from erlangen.training.processes import Processes, joined
    from erlangen.training.schedule import Constant, Cosine
    from erlangen.training.seeds import over_seeds
    from erlangen.training.text import Characters, Corpus, read_text
    from erlangen.training.trainer import Diverged, Interrupted, Run, Verdict, train
    from erlangen.training.vit import train_vit, vit_run

# name -> module of this package it is imported from when first used.
_LAZY = {
    "Characters": "text",
    "Constant": "schedule",
    "Corpus": "text",
    "Cosine": "schedule",
    "Diverged": "trainer",
    "History": "history",
    "Interrupted": "trainer",
    "Places": "batches",
    "Processes": "processes",
    "Run": "trainer",
    "Shuffled": "batches",
    "Verdict": "trainer",
    "gat_run": "gat",
    "gpt_run": "gpt",
    "joined": "processes",
    "load_gpt": "gpt",
    "over_seeds": "seeds",
    "read_text": "text",
    "sample": "gpt",
    "train": "trainer",
    "train_gat": "gat",
    "train_gpt": "gpt",
    "train_vit": "vit",
    "vit_run": "vit",
}

__all__ = [
    "Characters",
    "Constant",
    "Corpus",
    "Cosine",
    "Diverged",
    "GATRecipe",
    "GPTRecipe",
    "History",
    "Interrupted",
    "Places",
    "Processes",
    "Run",
    "Shuffled",
    "Verdict",
    "ViTRecipe",
    "gat_run",
    "gpt_run",
    "joined",
    "load_gpt",
    "over_seeds",
    "read_text",
    "sample",
    "train",
    "train_gat",
    "train_gpt",
    "train_vit",
    "vit_run",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'erlangen.training' has no attribute {name!r}")
    value = getattr(import_module(f"erlangen.training.{_LAZY[name]}"), name)
    globals()[name] = value  # found directly from now on
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
