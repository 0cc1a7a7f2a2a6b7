"""What a run leaves behind: results with their keys, tables, pictures, the page."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.cases import BY_NAME
from benchmarks.slope import slope
from benchmarks.targets import Target

from benchmarks import document, measure, memory, plot, results, table, targets
from benchmarks import slope as slopes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def no_collection(monkeypatch):
    """Between turns garbage is collected, which takes a second in a process that has run other tests."""
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)


@pytest.fixture(scope="module")
def outcome():
    """A case and a family, run in processes of their own as `python -m benchmarks` runs them."""
    found = results.empty()
    for name in ("graph-10k", "scaling-window-64"):
        command = [sys.executable, "-m", "benchmarks.worker", name, "--quick"]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        *steps, last = (json.loads(line) for line in done.stdout.splitlines())
        assert all(0 <= step["done"] <= 1 for step in steps)
        results.add(found, last["outcome"])
    return found


def test_every_result_has_exactly_its_keys(outcome):
    assert [(r["case"], r["mode"]) for r in outcome["cases"]] == [
        ("graph-10k", "forward"),
        ("graph-10k", "training"),
        ("scaling-window-64/n=256", "forward"),
        ("scaling-window-64/n=512", "forward"),
        ("scaling-window-64/n=256", "training"),
        ("scaling-window-64/n=512", "training"),
    ]
    for r in outcome["cases"]:
        assert tuple(r) == results.KEYS
        assert r["erlangen_ms"] > 0
        assert r["peers"].keys() == r["peers_mb"].keys()
        assert r["best_peer"] == min((p for p in r["peers"] if r["peers"][p]), key=lambda p: r["peers"][p])
        assert r["speedup"] == pytest.approx(r["peers"][r["best_peer"]] / r["erlangen_ms"])
        assert r["fraction_of_peak"] > 0


def test_a_peer_that_cannot_run_is_null_with_a_reason(outcome):
    forward = outcome["cases"][0]
    assert forward["peers"]["PyG GATConv"] is None
    assert "a_i + b_j" in outcome["details"]["graph-10k"]["forward"]["not_run"]["PyG GATConv"]


def test_the_machine_is_described(outcome):
    assert outcome["machine"]["matmul_gflops"] > 0
    assert outcome["machine"]["copy_gb_per_s"] > 0


def test_files_tables_pictures_and_the_page(outcome, tmp_path):
    path = tmp_path / "results.json"
    results.write(outcome, path)
    assert results.read(path) == outcome
    pictures = plot.draw(outcome, tmp_path / "plots")
    assert [picture.name for picture in pictures] == ["scaling-window-64.png"]
    assert pictures[0].stat().st_size > 0
    page = tmp_path / "page.md"
    page.write_text(f"before\n{document.BEGIN}\nold\n{document.END}\nafter\n")
    document.write_docs(outcome, page, pictures)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| graph-10k | training |" in text
    assert "plots/scaling-window-64.png" in text
    (tmp_path / "none.md").write_text("no markers")
    with pytest.raises(ValueError, match="no markers"):
        document.write_docs(outcome, tmp_path / "none.md", pictures)


def test_targets_are_not_judged_at_other_sizes(outcome):
    assert all(row[-1].startswith("not judged") for row in table.rows(outcome))
    assert all(row[-1] == "" for row in table.slope_rows(outcome))


def test_a_failed_case_replaces_its_old_results_and_keeps_the_others(outcome):
    found = json.loads(json.dumps(outcome))
    results.add_failure(found, "graph-10k", "off by one")
    assert found["failed"] == {"graph-10k": "off by one"}
    assert {results.family(r["case"]) for r in found["cases"]} == {"scaling-window-64"}


def test_targets_are_met_or_missed():
    result = {
        "erlangen_ms": 5.0,
        "speedup": 2.0,
        "fraction_of_peak": 0.5,
        "best_peer": "PyG TransformerConv",
        "erlangen_mb": 10.0,
        "peers_mb": {"PyG TransformerConv": 100.0},
    }
    assert Target(2.0, 0.6, 1 / 20, 10).verdicts(result) == [
        ("2x", True),
        ("60% of peak", False),
        ("1/20 of PyG's memory", False),
        ("under 10 ms", True),
    ]
    assert Target(1.0).verdicts({**result, "speedup": None}) == [("1x", False)]


def test_a_quick_contender_is_called_in_a_loop(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += measure.TURN / 9.5

    times = measure.interleaved({"quick": call}, measure.Budget(least=1, most=1, seconds=1.0), {})
    assert times["quick"] == pytest.approx(1e3 * measure.TURN / 9.5)
    assert now[0] == pytest.approx(11 * measure.TURN / 9.5)  # one call to warm up and ten that fill the turn


def test_turns_are_interleaved_and_their_order_changes(monkeypatch, no_collection):
    monkeypatch.setattr(measure, "TURN", 0.0)
    order = []
    contenders = {name: (lambda name=name: order.append(name)) for name in "ab"}
    times = measure.interleaved(contenders, measure.Budget(least=20, most=20, seconds=1.0), {})
    turns = ["".join(order[i : i + 4]) for i in range(0, len(order), 4)]
    assert len(turns) == 20
    assert set(turns) == {"aabb", "bbaa"}  # each once unmeasured, so that it finds its caches warm
    assert times.keys() == {"a", "b"}
    order.clear()
    slow = dict.fromkeys("ab", 2 * measure.WARM)
    measure.interleaved(contenders, measure.Budget(least=2, most=3, seconds=10 * measure.WARM), slow)
    assert [sorted(order[i : i + 2]) for i in range(0, 6, 2)] == [["a", "b"]] * 3
    assert len(order) == 6
    order.clear()
    measure.interleaved(contenders, measure.Budget(least=2, most=3, seconds=0.0), slow)
    assert sorted(order) == ["a", "b"]


def test_slow_contenders_leave_turns_out_evenly(monkeypatch, no_collection):
    monkeypatch.setattr(measure, "TURN", 0.0)
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])
    order: list[str] = []

    def contender(name: str, seconds: float) -> Callable[[], None]:
        def call() -> None:
            now[0] += seconds
            order.append(name)

        return call

    taken = {"quick": 0.01, "slow": 0.25, "slowest": 3.0}
    contenders = {name: contender(name, seconds) for name, seconds in taken.items()}
    measure.interleaved(
        contenders, measure.Budget(least=3, most=30, seconds=1.0), dict.fromkeys(taken, 2 * measure.WARM)
    )
    turns, turn = {name: [] for name in taken}, -1
    for name in order:
        turn += name == "quick"
        turns[name].append(turn)
    assert turns["quick"] == list(range(30))
    for name, count in {"slow": 4, "slowest": 3}.items():
        assert len(turns[name]) == count
        for place, at in enumerate(turns[name]):
            assert abs(at - place * 30 / count) <= 1.5


def test_the_fastest_way_to_run_a_peer_is_chosen(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(measure.time, "perf_counter", lambda: now[0])

    def way(seconds, first=0.0):
        steps = iter([first, seconds, seconds, seconds])

        def run():
            now[0] += next(steps)

        return run

    ways = [way(3.0), way(1.0, first=9.0), way(2.0)]  # a first call may compile, and does not count
    assert measure.fastest(ways, ()) is ways[1]


@pytest.mark.skipif(not memory.supported(), reason="page faults and their cause differ elsewhere")
def test_freed_memory_is_kept_where_asked_for():
    code = """
import resource, sys
import torch
from benchmarks import memory
if sys.argv[1] == "keep":
    memory.keep_freed()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print([faults() for _ in range(6)][-1])
"""
    count = {}
    for way in ("keep", "default"):
        done = subprocess.run([sys.executable, "-c", code, way], cwd=ROOT, check=True, capture_output=True)
        count[way] = int(done.stdout)
    assert count["keep"] < 100 < 1000 < count["default"]  # 64 MB are 16,384 small pages


@pytest.mark.parametrize("module", [results, table, targets, slopes])
def test_the_examples_in_the_docstrings_run(module):
    failed, tried = doctest.testmod(module)
    assert tried
    assert not failed


def test_the_slope_of_a_power_is_its_exponent():
    assert slope([(n, 3 * n**1.5) for n in (10, 100, 1000)]) == pytest.approx(1.5)
    assert slope([(10, 1.0)]) is None


@pytest.mark.skipif(not memory.supported(), reason="the peak of the resident set cannot be read here")
def test_memory_counts_what_a_step_allocates():
    code = (
        "from benchmarks.cases import BY_NAME; from benchmarks.memory import peak_mb; "
        "print(peak_mb(BY_NAME['causal'], 1024, 'materialised', False))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    scores = 8 * 1024 * 1024 * 4 / 2**20
    assert scores < float(done.stdout) < 6 * scores


def test_the_command_lists_its_cases():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(BY_NAME)
