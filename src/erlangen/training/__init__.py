"""Training that can be interrupted: the loop, its checkpoints, and a recipe per model.

>>> from erlangen.training import Cosine
>>> Cosine(peak=1e-3, steps=100, warmup=10)(9)
0.001
"""

from typing import TYPE_CHECKING

from erlangen.packages import lazily
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

__getattr__, __dir__ = lazily(__name__)
