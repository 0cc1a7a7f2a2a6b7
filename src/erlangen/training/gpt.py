"""Train a GPT to continue a text, character by character."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from erlangen.errors import DataError
from erlangen.models import GPT
from erlangen.models.saved import read_tensors
from erlangen.training import outcome
from erlangen.training.batches import Places
from erlangen.training.files import write_text
from erlangen.training.history import History
from erlangen.training.processes import ALONE, Processes
from erlangen.training.randomness import INITIAL, SAMPLE, generator, mixed
from erlangen.training.recipes import GPTRecipe
from erlangen.training.schedule import Cosine
from erlangen.training.text import Characters, Corpus
from erlangen.training.trainer import Run


def gpt_run(corpus: Corpus, recipe: GPTRecipe, processes: Processes = ALONE) -> Run:
    """The run that trains a GPT on a corpus: AdamW, a warm-up and half a cosine, gradients of norm at most 1.

    The loss is the mean over all predicted characters of -log p(next character), in nats.

    >>> recipe = GPTRecipe(context=8, layers=1, heads=2, width=8, batch=2, steps=3)
    >>> from erlangen.training import train
    >>> history = train(gpt_run(Corpus.of("to be or not to be, " * 20, context=8), recipe))
    >>> len(history.losses), sorted(history.evaluations[-1])
    (3, ['step', 'validation'])
    """
    sizes = GPT.Config(
        vocab_size=len(corpus.vocabulary),
        context=recipe.context,
        layers=recipe.layers,
        heads=recipe.heads,
        width=recipe.width,
        dropout=recipe.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(mixed(recipe.seed, INITIAL))
        model = GPT(sizes)
    places = Places(corpus.places, recipe.batch, recipe.seed, processes)
    return Run(
        model,
        _optimizer(model, recipe.rate),
        Cosine(recipe.rate, recipe.steps, warmup=min(100, recipe.steps // 10)),
        batch=lambda step: corpus.windows(places(step)),
        loss=_loss,
        steps=recipe.steps,
        seed=recipe.seed,
        evaluate=lambda model: {"validation": validation_loss(model, corpus)},
        every=min(max(recipe.steps // 10, 1), 500),
        clip=1.0,
        config=outcome.configuration("gpt", recipe, processes, text=corpus.digest),
    )


def _optimizer(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW that lets matrices decay, but neither biases nor normalisations."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), fused=True)


def _loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    return F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())


@torch.no_grad()
def validation_loss(model: nn.Module, corpus: Corpus) -> float:
    """The mean of -log p(next character) over the whole last tenth of the text, in nats.

    It is read in windows of `context` characters side by side, so that every character but the first is
    predicted exactly once, from up to `context` characters before it in its window.

    >>> class Uniform(nn.Module):
    ...     def forward(self, ids):
    ...         return torch.zeros(*ids.shape, 4)
    >>> round(validation_loss(Uniform(), Corpus.of("abcd" * 30, context=8)), 4)  # log 4
    1.3863
    """
    total, count = 0.0, 0
    for inputs, targets in corpus.validating():
        logits = model(inputs).flatten(0, -2)
        total += F.cross_entropy(logits, targets.flatten(), reduction="sum").item()
        count += targets.numel()
    return total / count


def sample(
    model: GPT,
    vocabulary: Characters,
    prompt: str,
    length: int,
    *,
    count: int = 1,
    seed: int = 0,
    temperature: float = 0.8,
) -> list[str]:
    """The prompt, continued `count` times by `length` characters drawn from the model.

    >>> model = GPT(GPT.Config(vocab_size=3, context=4, layers=1, heads=1, width=4))
    >>> [len(text) for text in sample(model, Characters("abc"), "ab", 5, count=2)]
    [7, 7]
    """
    ids = vocabulary.encode(prompt).expand(count, -1)
    drawn = model.generate(ids, length, temperature=temperature, generator=generator(seed, SAMPLE))
    return [vocabulary.decode(row) for row in drawn]


def load_gpt(path: Path) -> tuple[GPT, Characters]:
    """The model that `train_gpt` left in a file, and the characters it reads and writes.

    >>> load_gpt(Path("nowhere.safetensors"))
    Traceback (most recent call last):
    erlangen.errors.DataError: nowhere.safetensors: no such file
    """
    characters = read_tensors(path)[1].get("characters")
    if characters is None:
        raise DataError(f"{path} was not written by the training of a GPT: it names no characters")
    return GPT.load(path).eval(), Characters(json.loads(characters))


def train_gpt(
    text: str,
    out: Path,
    recipe: GPTRecipe = GPTRecipe(),  # noqa: B008 (frozen)
    *,
    resume: bool = False,
    report: Callable[[History], None] = lambda history: None,
) -> dict[str, Any]:
    """Train a GPT on a text and leave model, loss curve and samples in the folder `out`; gives the summary.

    >>> import tempfile
    >>> out = Path(tempfile.mkdtemp())
    >>> recipe = GPTRecipe(context=8, layers=1, heads=2, width=8, batch=2, steps=3)
    >>> summary = train_gpt("to be or not to be, " * 20, out, recipe)
    >>> summary["model"], summary["steps"], summary["validation_characters"]
    ('gpt', 3, 39)
    >>> model, vocabulary = load_gpt(out / "model.safetensors")
    >>> len(sample(model, vocabulary, "to be", 10)[0])
    15
    """
    processes = Processes.current()
    corpus = Corpus.of(text, recipe.context)
    characters = {"characters": json.dumps(corpus.vocabulary.characters)}
    model, history = outcome.trained(gpt_run(corpus, recipe, processes), out, resume, report, characters)
    if not processes.first:
        return {}
    prompt = "\n" if "\n" in corpus.vocabulary.characters else text[0]
    samples = sample(model, corpus.vocabulary, prompt, 500, count=3)
    write_text(out / "samples.txt", "\n\n--------\n\n".join(each.strip("\n") for each in samples) + "\n")
    summary = {
        "model": "gpt",
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_characters": len(corpus.training),
        "validation_characters": len(corpus.validation) - 1,
        "training_loss": history.losses[-1],
        "validation_loss": history.latest("validation"),
        "files": {"samples": "samples.txt"},
    }
    return outcome.write(out, history, summary, "GPT: -log p(next character)", "validation")
