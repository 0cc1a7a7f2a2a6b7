"""A picture per family: time against n, both logarithmic, with the fitted slopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.results import Results, family, size
from erlangen.show.palette import BLUE, INK, ORANGE

COLORS = (ORANGE, "#009e73", "#cc79a7", INK)


def draw(results: Results, folder: Path) -> list[Path]:
    """Draw every family that has results; gives the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name, modes in results["details"].items() if any("slopes" in m for m in modes.values())]
    return [_draw(name, results, folder / f"{name}.png") for name in names]


def _draw(name: str, results: Results, path: Path) -> Path:
    details = results["details"][name]
    figure = Figure(figsize=(5 * len(details), 4), layout="constrained")
    panels: Any = figure.subplots(1, len(details), sharey=True, squeeze=False)[0]
    for panel, (mode, detail) in zip(panels, details.items(), strict=True):
        chosen = [r for r in results["cases"] if family(r["case"]) == name and r["mode"] == mode]
        lines = {"erlangen": {size(r["case"]): r["erlangen_ms"] for r in chosen}}
        for peer in chosen[0]["peers"]:
            lines[peer] = {size(r["case"]): r["peers"][peer] for r in chosen if r["peers"][peer] is not None}
        for (who, points), color in zip(lines.items(), (BLUE, *COLORS), strict=False):
            fitted = detail["slopes"].get(who)
            label = who if fitted is None else f"{who}, slope {fitted:.2f}"
            panel.loglog(list(points), list(points.values()), "o-", color=color, label=label)
        panel.set_title(f"{name}, {mode}", color=INK)
        panel.set_xlabel("n")
        panel.grid(True, which="major", alpha=0.3)
        panel.legend(frameon=False, fontsize="small")
    panels[0].set_ylabel("milliseconds")
    figure.savefig(path, dpi=120)
    return path
