"""results.json: `machine`, `cases` (one object per case, size and mode), `details` and `failed`, by case."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

KEYS = (
    "case",
    "mode",
    "erlangen_ms",
    "peers",
    "best_peer",
    "speedup",
    "fraction_of_peak",
    "erlangen_mb",
    "peers_mb",
)
Results = dict[str, Any]


def empty() -> Results:
    """No results yet."""
    return {"machine": {}, "cases": [], "details": {}, "failed": {}}


def read(path: Path) -> Results:
    """The results in a file, or none yet."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else empty()


def write(results: Results, path: Path) -> None:
    """Write so that a reader, or an interruption, never meets half a file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def forget(results: Results, name: str) -> None:
    """Drop what is known of a case."""
    results["cases"] = [r for r in results["cases"] if family(r["case"]) != name]
    results["details"].pop(name, None)
    results["failed"].pop(name, None)


def add(results: Results, outcome: dict[str, Any]) -> None:
    """Put the outcome of a case in the place of an earlier one; the limits are medians over the cases."""
    forget(results, outcome["case"])
    results["cases"] += outcome["cases"]
    results["details"][outcome["case"]] = outcome["details"]
    results["machine"] = {**outcome["machine"], **_limits(results["details"])}


def add_failure(results: Results, name: str, why: str) -> None:
    """Note that a case failed; an earlier result of it no longer stands."""
    forget(results, name)
    results["failed"][name] = why


def family(label: str) -> str:
    """The case a result belongs to: a family names its size behind a slash.

    >>> family("scaling-causal/n=512"), family("full")
    ('scaling-causal', 'full')
    """
    return label.partition("/")[0]


def size(label: str) -> int | None:
    """The size in the name of a result of a family.

    >>> size("scaling-causal/n=512"), size("full")
    (512, None)
    """
    _, found, number = label.partition("/n=")
    return int(number) if found else None


def _limits(details: dict[str, Any]) -> dict[str, float]:
    modes = [mode for case in details.values() for mode in case.values()]
    return {key: median(mode[key] for mode in modes) for key in ("matmul_gflops", "copy_gb_per_s")}
