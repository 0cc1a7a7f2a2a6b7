"""The results as a table: in the terminal, and as Markdown for the documentation."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table

from benchmarks.cases import BY_NAME
from benchmarks.results import Results
from benchmarks.targets import SLOPE, Target

HEADER = ("case", "mode", "erlangen", "best peer", "speed-up", "of peak", "memory", "its memory", "target")


def milliseconds(value: float | None) -> str:
    """A time with three digits.

    >>> milliseconds(0.01234), milliseconds(1234.5), milliseconds(None)
    ('0.0123 ms', '1,234 ms', '-')
    """
    return "-" if value is None else f"{value:,.0f} ms" if value >= 100 else f"{value:.3g} ms"


def megabytes(value: float | None) -> str:
    """Memory, in megabytes of 2^20 bytes."""
    return "-" if value is None else f"{value:,.0f} MB" if value >= 10 else f"{value:.1f} MB"


def verdict(result: dict[str, Any], sizes: list[int]) -> str:
    """Every demand on a result and whether it is met; none is judged at other sizes than the case's."""
    case = BY_NAME[result["case"]]
    if tuple(sizes) != case.sizes:
        return f"not judged at n = {sizes[-1]:,}"
    target = case.targets.get(result["mode"], Target())
    return "; ".join(f"{words} {_met(met)}" for words, met in target.verdicts(result))


def _met(met: bool) -> str:
    return "met" if met else "missed"


def rows(results: Results) -> list[tuple[str, ...]]:
    """One row of text for each result of a case that is no family."""
    return [
        (
            r["case"],
            r["mode"],
            milliseconds(r["erlangen_ms"]),
            "-" if r["best_peer"] is None else f"{r['best_peer']} {milliseconds(r['peers'][r['best_peer']])}",
            "-" if r["speedup"] is None else f"{r['speedup']:.2f}x",
            "-" if r["fraction_of_peak"] is None else f"{r['fraction_of_peak']:.0%}",
            megabytes(r["erlangen_mb"]),
            megabytes(r["peers_mb"].get(r["best_peer"])),
            verdict(r, results["details"][r["case"]][r["mode"]]["sizes"]),
        )
        for r in results["cases"]
        if "/" not in r["case"]
    ]


def slope_rows(results: Results) -> list[tuple[str, ...]]:
    """One row for each family and mode: its sizes and the slopes of all contenders."""
    found = []
    for name, modes in results["details"].items():
        for mode, detail in modes.items():
            if "slopes" not in detail:
                continue
            own = detail["slopes"]["erlangen"]
            others = [
                f"{who} {s:.2f}" for who, s in detail["slopes"].items() if s is not None and who != "erlangen"
            ]
            low, high = SLOPE
            held = BY_NAME[name].linear and BY_NAME[name].sizes == tuple(detail["sizes"])
            wanted = f"{low:g} to {high:g} {_met(low <= own <= high)}" if held else ""
            sizes = f"{detail['sizes'][0]:,} to {detail['sizes'][-1]:,}"
            found.append((name, mode, sizes, f"{own:.3f}", ", ".join(others), wanted))
    return found


SLOPE_HEADER = ("family", "mode", "n", "slope of erlangen", "of peers", "target")


def peer_rows(results: Results) -> list[tuple[str, ...]]:
    """One row for every peer of every case that is no family: its time, or why it did not run."""
    found = []
    for r in results["cases"]:
        if "/" in r["case"]:
            continue
        detail = results["details"][r["case"]][r["mode"]]
        for name, ms in r["peers"].items():
            told = (
                milliseconds(ms) if ms is not None else f"not run: {detail['not_run'].get(name, 'unknown')}"
            )
            first = detail["first_call_s"].get(name)
            found.append(
                (
                    r["case"],
                    r["mode"],
                    name,
                    told,
                    megabytes(r["peers_mb"].get(name)),
                    "-" if first is None else f"{first:.2f} s",
                )
            )
    return found


PEER_HEADER = ("case", "mode", "peer", "time", "memory", "first call")


def terminal(results: Results) -> Group:
    """The tables for a terminal."""
    parts = [_rich("Attention on this machine", HEADER, rows(results))]
    if slopes := slope_rows(results):
        parts.append(_rich("Growth: slope of log time against log n", SLOPE_HEADER, slopes))
    return Group(*parts)


def _rich(title: str, header: tuple[str, ...], body: list[tuple[str, ...]]) -> Table:
    table = Table(title=title)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in body:
        *rest, last = row
        coloured = last.replace("missed", "[red]missed[/]").replace(" met", " [green]met[/]")
        table.add_row(*rest, coloured)
    return table


def markdown(header: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    """A Markdown table.

    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [header, *body]
    shown = ["| " + " | ".join(row) + " |" for row in lines]
    return "\n".join([shown[0], "|" + "---|" * len(header), *shown[1:]])
