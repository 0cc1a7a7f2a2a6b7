"""Run the cases, each in a process of its own; show and keep what they measured."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import document, plot, table
from benchmarks import results as kept
from benchmarks.cases import ALL, BY_NAME

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
QUICK = HERE.parent / "build" / "benchmarks"
WIDTH = 150
"""The tables are not made narrower than this."""
PAGE = HERE.parent / "docs" / "benchmarks.md"


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--case",
        action="append",
        choices=sorted(BY_NAME),
        metavar="NAME",
        help="only this case; may be repeated; see --list",
    )
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes and few runs, to see that all works; writes to build/benchmarks",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON, not as tables")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="put the kept results into docs/benchmarks.md, without measuring",
    )
    return parser


def run(name: str, quick: bool, tell: Callable[[str, float], None]) -> dict[str, Any]:
    """Run one case in a new process; raises RuntimeError with the end of its messages if it fails."""
    command = [sys.executable, "-m", "benchmarks.worker", name, *(["--quick"] if quick else [])]
    with (
        tempfile.TemporaryFile("w+") as messages,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=messages, text=True, cwd=HERE.parent
        ) as process,
    ):
        assert process.stdout is not None
        outcome = None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            if "outcome" in told:
                outcome = told["outcome"]
            else:
                tell(told["doing"], told["done"])
        if process.wait() == 0 and outcome is not None:
            return outcome
        messages.seek(0)
        last = messages.read().strip().splitlines()[-1:] or [f"the process ended with {process.returncode}"]
        raise RuntimeError(last[0])


def main() -> int:
    """0 if every case ran and agreed, 1 if one failed."""
    options = arguments().parse_args()
    out = Console(stderr=True)
    if options.list:
        for case in ALL:
            print(f"{case.name:20} {case.what}")
        return 0
    if options.write_docs:
        results = kept.read(RESULTS)
        if not results["cases"]:
            out.print(f"{RESULTS} has no results yet: run python -m benchmarks first")
            return 1
        document.write_docs(results, PAGE, plot.draw(results, HERE / "plots"))
        return 0

    folder = QUICK if options.quick else HERE
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS.name
    names = options.case or [case.name for case in ALL]
    results = kept.read(path) if options.case else kept.empty()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    failed = []
    with Progress(*columns, console=out) as progress:
        task = progress.add_task("", total=len(names))
        for place, name in enumerate(names):
            progress.update(task, completed=place, description=name)

            def tell(doing: str, done: float, place: int = place, name: str = name) -> None:
                progress.update(task, completed=place + done, description=f"{name}: {doing}")

            try:
                kept.add(results, run(name, options.quick, tell))
            except RuntimeError as error:
                failed.append(name)
                kept.add_failure(results, name, str(error))
                out.print(f"[red]{name} failed:[/] {error}", markup=True)
            kept.write(results, path)
        progress.update(task, completed=len(names), description="done")
    plot.draw(results, folder / "plots")
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        screen = Console()
        Console(width=max(screen.width, WIDTH)).print(table.terminal(results))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
