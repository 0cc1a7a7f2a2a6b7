"""Training that can be interrupted: the loop, its checkpoints, and a recipe per model."""

from erlangen.training.batches import Places, Shuffled
from erlangen.training.history import History
from erlangen.training.processes import Processes, joined
from erlangen.training.schedule import Constant, Cosine
from erlangen.training.trainer import Diverged, Interrupted, Run, Verdict, train

__all__ = [
    "Constant",
    "Cosine",
    "Diverged",
    "History",
    "Interrupted",
    "Places",
    "Processes",
    "Run",
    "Shuffled",
    "Verdict",
    "joined",
    "train",
]
