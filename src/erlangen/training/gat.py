"""Train a GAT to tell the subject of the documents of a citation network, by the published recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.models import GAT
from erlangen.relations import Graph
from erlangen.training import outcome
from erlangen.training.history import Evaluation, History
from erlangen.training.planetoid import Citations
from erlangen.training.processes import Processes
from erlangen.training.randomness import INITIAL, mixed
from erlangen.training.recipes import GATRecipe
from erlangen.training.schedule import Constant
from erlangen.training.trainer import Run, Verdict


def gat_run(data: Citations, recipe: GATRecipe) -> Run:
    """The run that trains a GAT on a citation network: Adam on the cross-entropy of the training nodes.

    Every step sees all nodes. The validation nodes decide when to stop and which weights to keep (`judged`);
    the test nodes decide nothing.

    >>> from erlangen.training import train
    >>> history = train(gat_run(example(), GATRecipe(steps=3)))
    >>> history.step, sorted(history.evaluations[-1])
    (3, ['accuracy', 'step', 'validation'])
    """
    sizes = GAT.Config(
        features=data.x.shape[1],
        classes=data.classes,
        hidden=recipe.hidden,
        heads=recipe.heads,
        output_heads=recipe.output_heads,
        dropout=recipe.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mixed(recipe.seed, INITIAL))
        model = GAT(sizes)
    x = data.x.to_sparse()  # a document has few of the words
    return Run(
        model,
        torch.optim.Adam(model.parameters(), lr=recipe.rate, weight_decay=recipe.decay, fused=True),
        Constant(recipe.rate),
        batch=lambda step: x,
        loss=lambda model, x: F.cross_entropy(model(x, data.graph)[data.train], data.y[data.train]),
        steps=recipe.steps,
        seed=recipe.seed,
        evaluate=lambda model: measured(model(x, data.graph), data.y, data.validation),
        every=1,
        rule=lambda evaluations: judged(evaluations, recipe.patience),
        config={"model": "gat", "dataset": data.name, **asdict(recipe)},
    )


def measured(logits: Tensor, labels: Tensor, nodes: Tensor) -> Evaluation:
    """The cross-entropy on some nodes, and the share of them that is classified rightly.

    >>> measured(torch.eye(3), torch.tensor([0, 1, 0]), torch.tensor([0, 2]))["accuracy"]
    0.5
    """
    return outcome.scored(logits[nodes], labels[nodes], "validation")


def judged(evaluations: Sequence[Evaluation], patience: int) -> Verdict:
    """Keep weights of which neither loss nor accuracy was ever better; stop when both were, for `patience`.

    >>> judged([{"validation": 1.0, "accuracy": 0.5}, {"validation": 1.1, "accuracy": 0.4}], patience=1)
    Verdict(keep=False, stop=True)
    >>> judged([{"validation": 1.0, "accuracy": 0.5}, {"validation": 1.1, "accuracy": 0.5}], patience=1)
    Verdict(keep=False, stop=False)
    >>> judged([{"validation": 1.0, "accuracy": 0.5}, {"validation": 0.9, "accuracy": 0.5}], patience=1)
    Verdict(keep=True, stop=False)
    """
    least = min(seen["validation"] for seen in evaluations)
    most = max(seen["accuracy"] for seen in evaluations)
    good = [seen["validation"] <= least or seen["accuracy"] >= most for seen in evaluations]
    last = evaluations[-1]
    return Verdict(
        keep=last["validation"] <= least and last["accuracy"] >= most,
        stop=good[::-1].index(True) >= patience,
    )


def train_gat(
    data: Citations,
    out: Path,
    recipe: GATRecipe = GATRecipe(),  # noqa: B008 (frozen)
    *,
    resume: bool = False,
    report: Callable[[History], None] = lambda history: None,
) -> dict[str, Any]:
    """Train a GAT on a citation network; leave model and loss curve in the folder `out`; gives the summary.

    >>> import tempfile
    >>> summary = train_gat(example(), Path(tempfile.mkdtemp()), GATRecipe(steps=3))
    >>> summary["dataset"], summary["test_nodes"], 0 <= summary["test_accuracy"] <= 1
    ('example', 4, True)
    """
    model, history = outcome.trained(gat_run(data, recipe), out, resume, report)
    if not Processes.current().first:
        return {}
    summary = {
        "model": "gat",
        "dataset": data.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_nodes": len(data.train),
        "validation_nodes": len(data.validation),
        "test_nodes": len(data.test),
        "training_loss": history.losses[-1],
        "test_accuracy": rightly_classified(model, data),
    }
    return outcome.write(out, history, summary, f"GAT on {data.name}: cross-entropy", "validation")


@torch.no_grad()
def rightly_classified(model: nn.Module, data: Citations) -> float:
    """The share of test nodes that a trained model classifies rightly.

    >>> data = example()
    >>> rightly_classified(lambda x, graph: F.one_hot(data.y, 2).float(), data)
    1.0
    """
    return measured(model(data.x, data.graph), data.y, data.test)["accuracy"]


def example() -> Citations:
    """Twelve documents of two subjects, each with its own words; those of one subject cite each other.

    >>> example().graph.nodes
    12
    """
    y = torch.arange(12) % 2
    words = F.one_hot(y, 2).float()
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j and (i - j) % 2 == 0]
    parts = (torch.arange(0, 4), torch.arange(4, 8), torch.arange(8, 12))
    return Citations("example", words, y, Graph.from_pairs(pairs, nodes=12), *parts)
