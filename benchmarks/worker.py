"""One case in a process of its own: memory first, in forked children, then times, all contenders in turn.

`python -m benchmarks.worker CASE [--quick]` prints lines of JSON: {"doing": text, "done": fraction} as it
goes, and {"outcome": ...} at the end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import limits, measure, memory
from benchmarks.agreement import agree
from benchmarks.cases import BY_NAME, TRAINING, Case
from benchmarks.memory import OURS
from benchmarks.peers import CannotRun, load
from benchmarks.slope import slope

Tell = Callable[[str, float], None]
MEMORY_SHARE = 0.4
"""About how much of a case's time the memory takes, for the progress bar."""


def run_case(case: Case, quick: bool = False, tell: Tell = lambda doing, done: None) -> dict[str, Any]:
    """Measure one case: the results of all its sizes and modes, and the details that explain them."""
    sizes = case.sizes
    if quick:
        sizes = (case.tiny, 2 * case.tiny) if case.is_family else (case.tiny,)
    modules = (OURS, *case.peers)
    names = {module: load(module).NAME for module in modules}
    megabytes = _memory(case, sizes, modules, names, tell)
    if case.is_family:
        memory.keep_freed()

    results, details = [], {}
    for place, mode in enumerate(case.modes):
        share = (1 - MEMORY_SHARE) / len(case.modes)
        found = _times(case, sizes, mode, names, quick, tell, MEMORY_SHARE + place * share)
        details[mode] = found["details"]
        for size in sizes:
            peers = {name: found["ms"].get((size, m)) for m, name in names.items() if m != OURS}
            mb = {m: megabytes.get((size, mode, m)) for m in modules}
            label = f"{case.name}/n={size}" if case.is_family else case.name
            results.append(_result(label, mode, found, size, peers, mb, names))
        if case.is_family:
            details[mode]["slopes"] = {
                name: slope([(n, t) for (n, m), t in found["ms"].items() if m == module])
                for module, name in names.items()
            }
    return {"case": case.name, "cases": results, "details": details}


def _result(
    label: str,
    mode: str,
    found: dict[str, Any],
    size: int,
    peers: dict[str, float | None],
    mb: dict[str, float | None],
    names: dict[str, str],
) -> dict[str, Any]:
    own = found["ms"][size, OURS]
    measured = {name: ms for name, ms in peers.items() if ms is not None}
    best = min(measured, key=measured.__getitem__, default=None)
    flops = found["flops"][size]
    return {
        "case": label,
        "mode": mode,
        "erlangen_ms": own,
        "peers": peers,
        "best_peer": best,
        "speedup": None if best is None else measured[best] / own,
        "fraction_of_peak": None if flops is None else flops / own / 1e6 / found["details"]["matmul_gflops"],
        "erlangen_mb": mb[OURS],
        "peers_mb": {names[m]: value for m, value in mb.items() if m != OURS},
    }


def _memory(
    case: Case, sizes: tuple[int, ...], modules: tuple[str, ...], names: dict[str, str], tell: Tell
) -> dict[tuple[int, str, str], float | None]:
    wanted = [(size, mode, module) for size in sizes for mode in case.modes for module in modules]
    found = {}
    for place, (size, mode, module) in enumerate(wanted):
        tell(f"memory, {mode}: {names[module]}", MEMORY_SHARE * place / len(wanted))
        found[size, mode, module] = memory.peak_mb(case, size, module, mode == TRAINING)
    return found


def _times(
    case: Case,
    sizes: tuple[int, ...],
    mode: str,
    names: dict[str, str],
    quick: bool,
    tell: Tell,
    done: float,
) -> dict[str, Any]:
    training = mode == TRAINING
    contenders: dict[Any, Callable[[], Any]] = {}
    first: dict[Any, float] = {}
    reasons: dict[str, str] = {}
    flops = {}
    for size in sizes:
        problem = case.make(size)
        upstream = problem.upstream(training)
        flops[size] = problem.flops(training)
        expected: tuple[Any, ...] = ()
        for module, name in names.items():
            tell(f"{mode}: first call of {name}", done)
            start = time.perf_counter()
            try:
                run = load(module).prepare(problem, training)
            except CannotRun as reason:
                reasons.setdefault(name, f"n = {size:,}: {reason}" if case.is_family else str(reason))
                continue

            def turn(run: Any = run, problem: Any = problem, upstream: Any = upstream) -> Any:
                return measure.step(run, problem.inputs, upstream)

            result = turn()
            first[size, module] = time.perf_counter() - start
            if module == OURS:
                expected = result
            else:
                agree(expected, result, f"{case.name}, {mode}, n = {size}: {name}")
            contenders[size, module] = turn
    contenders["matmul"], contenders["copy"] = limits.matmul(), limits.copy()
    budget = measure.QUICK if quick else measure.FULL
    tell(f"{mode}: in turns", done)
    ms = measure.interleaved(contenders, budget, first)
    last = sizes[-1]
    return {
        "ms": {key: value for key, value in ms.items() if isinstance(key, tuple)},
        "flops": flops,
        "details": {
            "compared": case.what,
            "sizes": list(sizes),
            "matmul_gflops": limits.gflops(ms["matmul"]),
            "copy_gb_per_s": limits.gigabytes_per_second(ms["copy"]),
            "not_run": reasons,
            "first_call_s": {name: first[last, m] for m, name in names.items() if (last, m) in first},
        },
    }


def main(arguments: list[str]) -> None:
    """Run the case named first, and print the lines."""

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)

    name, *flags = arguments
    outcome = run_case(
        BY_NAME[name], "--quick" in flags, lambda doing, done: say({"doing": doing, "done": done})
    )
    say({"outcome": {**outcome, "machine": limits.machine()}})


if __name__ == "__main__":
    main(sys.argv[1:])
