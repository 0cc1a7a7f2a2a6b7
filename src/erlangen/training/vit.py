"""Train a vision transformer to read handwritten digits (scikit-learn's, 8 x 8 pixels)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import DataError
from erlangen.models import ViT
from erlangen.training import outcome
from erlangen.training.batches import Shuffled
from erlangen.training.history import Evaluation, History
from erlangen.training.processes import ALONE, Processes
from erlangen.training.randomness import INITIAL, MOVES, generator, mixed
from erlangen.training.recipes import ViTRecipe
from erlangen.training.schedule import Cosine
from erlangen.training.trainer import Run


@dataclass(frozen=True)
class Digits:
    """Images (count, 1, 8, 8) and their digits (count,), in two parts."""

    training: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_digits() -> Digits:
    """The 1,797 digits that scikit-learn brings; a quarter of each digit is the test, always the same.

    >>> digits = load_digits()
    >>> len(digits.training[1]), len(digits.test[1]), digits.test[0].shape[1:]
    (1347, 450, torch.Size([1, 8, 8]))
    >>> digits.training[0].std()  # the pixels of all training images have mean 0 and variance 1
    tensor(1.)
    """
    try:
        from sklearn.datasets import load_digits as sklearn_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise DataError(
            "the digits come with scikit-learn, which is not installed: pip install 'erlangen[train]'"
        ) from None
    bunch: Any = sklearn_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32)[:, None]
    labels = torch.tensor(bunch.target, dtype=torch.long)
    training, test = train_test_split(
        range(len(labels)), test_size=0.25, stratify=labels.numpy(), random_state=0
    )
    seen = images[training]
    images = (images - seen.mean()) / seen.std()
    return Digits((images[training], labels[training]), (images[test], labels[test]))


def shifted(images: Tensor, moves: Tensor) -> Tensor:
    """Each image moved by its own (down, right) of -1, 0 or 1 pixels; what comes in has the least value.

    >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    >>> shifted(image, torch.tensor([[1, 0]]))
    tensor([[[[1., 1.],
              [1., 2.]]]])
    """
    height, width = images.shape[-2:]
    framed = F.pad(images, (1, 1, 1, 1), value=images.min().item())
    rows = torch.arange(height) + 1 - moves[:, :1]
    columns = torch.arange(width) + 1 - moves[:, 1:]
    which = torch.arange(len(images))[:, None, None]
    return framed[which, 0, rows[:, :, None], columns[:, None, :]][:, None]


def vit_run(digits: Digits, recipe: ViTRecipe, processes: Processes = ALONE) -> Run:
    """The run that trains a ViT on the training digits, each moved by up to a pixel whenever it is seen.

    The test digits are measured along the way and at the end; nothing is chosen by them.

    >>> from erlangen.training import train
    >>> history = train(vit_run(load_digits(), ViTRecipe(layers=1, width=8, heads=2, batch=4, steps=3)))
    >>> len(history.evaluations), sorted(history.evaluations[-1])
    (3, ['accuracy', 'step', 'test'])
    """
    images, labels = digits.training
    sizes = ViT.Config(
        image_size=images.shape[-1],
        patch_size=recipe.patch,
        channels=1,
        layers=recipe.layers,
        heads=recipe.heads,
        width=recipe.width,
        classes=10,
        dropout=recipe.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mixed(recipe.seed, INITIAL))
        model = ViT(sizes)
        # Far apart from the start: learning where a patch lies would otherwise take hundreds of steps.
        nn.init.normal_(model.positions, std=0.5)
    order = Shuffled(len(labels), recipe.batch, recipe.seed, processes)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        seen = order(step)
        moves = torch.randint(
            -1, 2, (processes.count, len(seen), 2), generator=generator(recipe.seed, MOVES, step)
        )
        return shifted(images[seen], moves[processes.rank]), labels[seen]

    return Run(
        model,
        torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.05, fused=True),
        Cosine(recipe.rate, recipe.steps, warmup=min(100, recipe.steps // 10), floor=0.0),
        batch=batch,
        loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1),
        steps=recipe.steps,
        seed=recipe.seed,
        evaluate=lambda model: measured(model, digits),
        every=min(max(recipe.steps // 10, 1), 500),
        clip=1.0,
        config=outcome.configuration("vit", recipe, processes),
    )


@torch.no_grad()
def measured(model: nn.Module, digits: Digits) -> Evaluation:
    """The loss and the share of test digits that the model reads rightly.

    >>> class Zero(nn.Module):
    ...     def forward(self, images):
    ...         return torch.eye(10)[:1].expand(len(images), 10)
    >>> measured(Zero(), load_digits())["accuracy"]
    0.1
    """
    images, labels = digits.test
    return outcome.scored(model(images), labels, "test")


def train_vit(
    out: Path,
    recipe: ViTRecipe = ViTRecipe(),  # noqa: B008 (frozen)
    *,
    resume: bool = False,
    report: Callable[[History], None] = lambda history: None,
) -> dict[str, Any]:
    """Train a ViT on the digits and leave model and loss curve in the folder `out`; gives the summary.

    >>> import tempfile
    >>> recipe = ViTRecipe(layers=1, width=8, heads=2, batch=4, steps=3)
    >>> summary = train_vit(Path(tempfile.mkdtemp()), recipe)
    >>> summary["training_images"], summary["test_images"], 0 <= summary["test_accuracy"] <= 1
    (1347, 450, True)
    """
    processes = Processes.current()
    digits = load_digits()
    model, history = outcome.trained(vit_run(digits, recipe, processes), out, resume, report)
    if not processes.first:
        return {}
    summary = {
        "model": "vit",
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_images": len(digits.training[1]),
        "test_images": len(digits.test[1]),
        "training_loss": history.losses[-1],
        "test_loss": history.latest("test"),
        "test_accuracy": history.latest("accuracy"),
    }
    return outcome.write(out, history, summary, "ViT: cross-entropy of the digit", "test")
