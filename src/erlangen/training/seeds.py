"""The same training with several seeds: what varies is chance, and a mean says more than one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from erlangen.errors import ParameterError
from erlangen.training.files import write_json
from erlangen.training.outcome import CHECKPOINT


def over_seeds(
    seeds: Sequence[int],
    out: Path,
    one: Callable[[int, Path, bool], dict[str, Any]],
    measured: str,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Train once per seed, each in its folder `out/seed-N`; the summary has mean and standard deviation.

    `one(seed, folder, resume)` trains and gives its summary, in which `measured` is a number. With `resume`,
    runs that have a checkpoint go on from it (those that have ended only say so), and the others begin.

    >>> import tempfile
    >>> def one(seed, folder, resume):
    ...     return {"model": "none", "accuracy": 0.8 + 0.1 * seed, "seconds": 1.0, "files": {}}
    >>> summary = over_seeds([0, 1], Path(tempfile.mkdtemp()), one, "accuracy")
    >>> round(summary["accuracy"], 3), round(summary["accuracy_std"], 3), summary["seeds"]
    (0.85, 0.071, [0, 1])
    """
    if not seeds:
        raise ParameterError("at least one seed is needed")
    runs = []
    for seed in seeds:
        folder = out / f"seed-{seed}"
        runs.append(one(seed, folder, resume and (folder / CHECKPOINT).exists()))
    values = [run[measured] for run in runs]
    summary = {
        **{name: value for name, value in runs[0].items() if all(run.get(name) == value for run in runs)},
        "seeds": list(seeds),
        measured: mean(values),
        f"{measured}_std": stdev(values) if len(values) > 1 else 0.0,
        f"{measured}_by_seed": values,
        "steps": sum(run.get("steps", 0) for run in runs),
        "seconds": round(sum(run["seconds"] for run in runs), 1),
        "files": {f"seed {seed}": str(out / f"seed-{seed}") for seed in seeds},
    }
    summary["files"]["summary"] = str(out / "summary.json")
    write_json(out / "summary.json", summary)
    return summary
