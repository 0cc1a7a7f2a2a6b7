"""Every statement verifies on the real implementation, and fails on a broken one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import erlangen.nn.graph_layer
import erlangen.nn.paper
import erlangen.paper.theorems.equivariance_items as equivariance_items
import erlangen.paper.theorems.ranking as ranking_items
from erlangen.attention.binding import clear_cache
from erlangen.errors import ParameterError
from erlangen.paper.table2.architectures import TABLE2
from erlangen.paper.theorems import ITEMS, run
from erlangen.paper.theorems.item import Item, Trial, statement
from erlangen.relations import Bipartite, Causal, Full, Neighborhoods, Window
from erlangen.symmetry import symmetry
from paper_breakers import ATTEND, BOUND, broken_attend

HOLDS, CORRECTION, FAILS, NONE = "holds", "with correction", "fails", "none"
JUDGED = {
    # item: (as printed, as meant, proof)
    "Definition 1": (CORRECTION, HOLDS, NONE),
    "Definition 2": (CORRECTION, HOLDS, NONE),
    "Definition 3": (HOLDS, CORRECTION, NONE),
    "Definition 4": (CORRECTION, CORRECTION, NONE),
    "Definition 5": (HOLDS, HOLDS, NONE),
    "Definition 6": (HOLDS, HOLDS, NONE),
    "Definition 7": (CORRECTION, HOLDS, NONE),
    "Definition 8": (CORRECTION, HOLDS, NONE),
    "Definition 9": (CORRECTION, HOLDS, NONE),
    "Definition 10": (CORRECTION, CORRECTION, NONE),
    "Proposition 1": (CORRECTION, CORRECTION, NONE),
    "attention is a graph layer": (HOLDS, HOLDS, CORRECTION),
    "Lemma 1": (CORRECTION, CORRECTION, CORRECTION),
    "Theorem 1": (HOLDS, HOLDS, HOLDS),
    "Theorem 2": (HOLDS, HOLDS, CORRECTION),
    "Theorem 3": (HOLDS, HOLDS, CORRECTION),
    "Theorem 4": (HOLDS, HOLDS, CORRECTION),
    "Theorem 5": (HOLDS, HOLDS, NONE),
    "Theorem 6": (FAILS, CORRECTION, FAILS),
    "Theorem 7": (FAILS, CORRECTION, FAILS),
    "Corollary 1": (HOLDS, HOLDS, CORRECTION),
    "Theorem 8": (CORRECTION, HOLDS, CORRECTION),
    "Table 1": (FAILS, CORRECTION, NONE),
    **{f"Figure {k}": (HOLDS, HOLDS, NONE) for k in range(1, 5)},
    "Table 2": (FAILS, CORRECTION, NONE),
    "Section 3.2: S4": (FAILS, FAILS, NONE),
    "Appendix A.1": (HOLDS, HOLDS, NONE),
    "Appendix A.2": (HOLDS, HOLDS, NONE),
    "Appendix A.3": (HOLDS, HOLDS, NONE),
    "Appendix A.4": (CORRECTION, HOLDS, NONE),
    "Appendix A.5": (FAILS, FAILS, NONE),
    "Footnote 4": (HOLDS, HOLDS, NONE),
    "Figure 5": (CORRECTION, CORRECTION, NONE),
    "Code B.1": (HOLDS, HOLDS, NONE),
    "Code B.2": (HOLDS, HOLDS, NONE),
    "Code B.3": (HOLDS, HOLDS, NONE),
    "Code B.4": (HOLDS, HOLDS, NONE),
    "Code B.5": (CORRECTION, CORRECTION, NONE),
    "Convolution is attention": (HOLDS, HOLDS, NONE),
    "Convolution and translations": (CORRECTION, CORRECTION, NONE),
}
BEYOND = {
    "Row scaling is a gauge": (HOLDS, HOLDS, NONE),
    "Causal ALiBi is a key-only bias": (HOLDS, HOLDS, NONE),
    "T5 buckets are Toeplitz": (HOLDS, HOLDS, NONE),
    "Proposition 1 for kernels": (FAILS, CORRECTION, NONE),
    "Attention that is convolution": (FAILS, CORRECTION, NONE),
    "One softmax head is no convolution": (FAILS, CORRECTION, NONE),
    "Fano plane": (HOLDS, HOLDS, NONE),
    "group A4": (FAILS, CORRECTION, NONE),
    "additive logits on pairs": (FAILS, CORRECTION, NONE),
}
ALL = JUDGED | BEYOND


@pytest.fixture(scope="module")
def findings():
    return {finding.item: finding for finding in run()}


def test_every_statement_is_an_item():
    assert set(ITEMS) == set(ALL)
    assert {name for name, each in ITEMS.items() if each.beyond} == set(BEYOND)


@pytest.mark.parametrize("name", ALL)
def test_item(findings, name):
    finding = findings[name]
    assert finding.verified, finding
    columns = (finding.printed, finding.meant, finding.proof)
    assert tuple(judged.verdict for judged in columns) == ALL[name]
    for judged in columns:
        assert bool(judged.why) == (judged.verdict in (CORRECTION, FAILS))
    assert finding.holds_as_printed == (ALL[name][0] == HOLDS)
    assert (finding.counterexample is None) == finding.holds_as_printed
    assert "FAILED" not in finding.evidence
    words = ("symbolic", "by theorem", "exact", "numeric", "measured on")
    assert any(word in finding.evidence for word in words)
    keys = {"item", "paper", "holds_as_printed", "corrected", "evidence", "verified", "counterexample"}
    assert set(finding.as_dict()) == keys | {"printed", "meant", "proof", "beyond"}


def test_symbolic_is_said_of_what_was_computed_on_symbols_alone(findings):
    """What theory says for every n is called so, with the sizes at which it was checked exhaustively."""
    assert {name for name, f in findings.items() if "symbolic" in f.evidence} == {
        "Causal ALiBi is a key-only bias"
    }
    by_theorem = {name for name, f in findings.items() if "by theorem (" in f.evidence}
    assert by_theorem == {*[f"Theorem {k}" for k in (1, 3, 4, 5, 6, 7, 8)], "Corollary 1"}
    for name in by_theorem:
        assert "checked exhaustively for" in findings[name].evidence
        assert "n <= 9" in findings[name].evidence


def test_models_are_measured_and_named(findings):
    for name in ("Table 2", "Appendix A.1", "Footnote 4"):
        assert "erlangen BERT" in findings[name].evidence
    assert "erlangen S4" in findings["Section 3.2: S4"].evidence


@pytest.mark.parametrize(
    ("name", "column", "named"),
    [
        ("Lemma 1", "printed", "-inf alone"),
        ("Lemma 1", "proof", "nan"),
        ("Theorem 2", "proof", "transpose"),
        ("Theorem 3", "proof", "identity has these three without being total"),
        ("Theorem 4", "proof", "t > j > i"),
        ("Corollary 1", "proof", "t = n"),
        ("Theorem 8", "printed", "two readings"),
        ("Definition 2", "printed", "two readings"),
        ("Definition 3", "meant", "two readings"),
        ("Proposition 1", "printed", "encoder row 0"),
    ],
)
def test_the_slip_is_named(findings, name, column, named):
    assert named in getattr(findings[name], column).why


def test_counterexamples_lie_inside_the_hypotheses(findings):
    """Neither the fill of another listing against Lemma 1, nor a signed kernel against Proposition 1."""
    assert "1e9" not in findings["Lemma 1"].printed.why + findings["Lemma 1"].proof.why
    assert "kernel" not in findings["Proposition 1"].printed.why


def test_unknown_items_are_refused_with_the_list():
    with pytest.raises(ParameterError, match=r"'Theorem 9'.*Theorem 8"):
        run("Theorem 9")


# ---------------------------------------------------------------- broken on purpose


@pytest.fixture(autouse=True)
def fresh_bindings():
    """Attention keeps bound relations; a relation broken on purpose must not leave any."""
    yield
    clear_cache()


def fails(names):
    """The items that are verified no longer, of those given."""
    return {name for name in names if not run(name)[0].verified}


@pytest.mark.parametrize("name", ATTEND)
def test_a_broken_attention_fails_the_matching_items(monkeypatch, name):
    change, expected = ATTEND[name]
    monkeypatch.setattr(erlangen.nn.paper, "attend", broken_attend(change))
    assert fails(expected) == expected


@pytest.mark.parametrize("name", BOUND)
def test_a_broken_relation_fails_the_matching_items(monkeypatch, name):
    kind, bind, expected = BOUND[name]
    monkeypatch.setattr(kind, "_bind", bind)
    assert fails(expected) == expected


@pytest.mark.parametrize(
    ("kind", "size", "names"),
    [
        (Full, 9, {"Theorem 1", "Theorem 5"}),
        (Causal, 9, {"Theorem 3", "Theorem 6", "Corollary 1"}),
        (Window, 7, {"Theorem 4", "Theorem 7", "Corollary 1"}),
        (Bipartite, 8, {"Theorem 8"}),
    ],
)
def test_a_relation_that_is_wrong_at_one_size_alone_fails_what_holds_at_every_size(
    monkeypatch, kind, size, names
):
    """The check of a theorem is exhaustive: one edge too few at one n is found, by each theorem on it."""
    right = kind._bind

    def wrong(self, site):
        bound = right(self, site)
        if bound.keys != size or not bound.num_edges:
            return bound
        return Neighborhoods.from_edges(bound.queries, bound.keys, bound.edges()[:-1])

    monkeypatch.setattr(kind, "_bind", wrong)
    assert fails(names) == names


def test_a_wrong_symmetry_fails_the_theorems_on_equivariance(monkeypatch):
    def everything(relation, n=None, **options):
        return symmetry(Full(), n if n is not None else 7, **options)

    monkeypatch.setattr(equivariance_items, "symmetry", everything)
    assert fails({"Theorem 6", "Theorem 7", "Theorem 8"}) == {"Theorem 6", "Theorem 7", "Theorem 8"}


def test_a_graph_layer_without_its_unit_fails(monkeypatch):
    monkeypatch.setitem(erlangen.nn.graph_layer._MONOIDS, "sum", ("sum", 1.0))
    expected = {"Definition 4", "attention is a graph layer"}
    assert fails(expected) == expected


def test_a_ranking_that_contradicts_nothing_fails_table_1(monkeypatch):
    real = ranking_items.hierarchy
    monkeypatch.setattr(ranking_items, "hierarchy", lambda order, n: real("mask", n))
    assert fails({"Table 1"}) == {"Table 1"}


# --------------------------------------------------------------------- the harness


def item(check, printed, meant=HOLDS, proof=NONE) -> Item:
    printed = printed if isinstance(printed, str) else HOLDS if printed else FAILS
    return statement("x", paper="p", corrected="c", printed=printed, meant=meant, proof=proof)(check)


@pytest.mark.parametrize("printed", [True, False])
def test_a_check_that_shows_nothing_verifies_nothing(printed):
    assert not item(lambda trial: None, printed).run().verified


def test_a_claim_said_to_fail_needs_its_counterexample():
    assert not item(lambda trial: trial.exact("fine", True, n=3), False).run().verified
    assert item(lambda trial: trial.refuted("here", True), False).run().verified
    assert not item(lambda trial: trial.refuted("here", False), False).run().verified
    assert not item(lambda trial: trial.refuted("here", True), True).run().verified


def test_a_check_that_stops_verifies_nothing():
    def stops(trial: Trial) -> None:
        trial.exact("fine", True, n=3)
        raise RuntimeError("broken")

    finding = item(stops, True).run()
    assert not finding.verified
    assert not finding.holds_as_printed
    assert "broken" in finding.evidence


@pytest.mark.parametrize(
    ("a", "b", "close", "apart"),
    [([1.0], [1.0], True, False), ([1.0], [1.1], False, True), ([1.0], [1.0 + 1e-6], False, False)],
)
def test_between_close_and_apart_nothing_is_claimed(a, b, close, apart):
    trial = Trial()
    trial.close("close", a, b)
    trial.apart("apart", a, b)
    assert [holds for _, holds in trial.facts] == [close, apart]


def test_numbers_that_are_none_are_not_close():
    trial = Trial()
    trial.close("nan", [float("nan")], [float("nan")])
    assert trial.facts == [("nan", False)]


def shows(*calls):
    """A check that makes these calls of its trial: (method, outcome)."""

    def check(trial: Trial) -> None:
        for method, outcome in calls:
            getattr(trial, method)("said", outcome)

    return check


FACT = ("measured", True)


@pytest.mark.parametrize("method", ["refuted", "not_meant", "slip"])
def test_every_column_needs_its_own_witness(method):
    """A column judged not to hold is borne out by a witness against it, and by no other column's."""
    column = {"refuted": "printed", "not_meant": "meant", "slip": "proof"}[method]
    proven = FACT if column != "proof" else ("step", True)
    for verdict in (CORRECTION, FAILS):
        judged = {"printed": HOLDS, "meant": HOLDS, "proof": NONE} | {column: verdict}
        assert item(shows(proven, (method, True)), **judged).run().verified
        assert not item(shows(proven), **judged).run().verified
        assert not item(shows(proven, (method, False)), **judged).run().verified
        for other in {"refuted", "not_meant", "slip"} - {method}:
            assert not item(shows(proven, (other, True)), **judged).run().verified
    plain = {"printed": HOLDS, "meant": HOLDS, "proof": HOLDS if column == "proof" else NONE}
    finding = item(shows(proven, (method, True)), **plain).run()
    assert not finding.verified
    assert getattr(finding, column).verdict == FAILS


def test_a_correction_needs_facts_that_save_the_claim():
    assert not item(shows(("refuted", True)), CORRECTION).run().verified
    assert item(shows(FACT, ("refuted", True)), CORRECTION).run().verified
    assert not item(shows(FACT, ("slip", True)), HOLDS, proof=CORRECTION).run().verified
    assert item(shows(("step", True), ("slip", True)), HOLDS, proof=CORRECTION).run().verified


def test_a_proof_that_holds_is_one_whose_lines_were_checked():
    assert not item(shows(FACT), HOLDS, proof=HOLDS).run().verified
    assert item(shows(("step", True)), HOLDS, proof=HOLDS).run().verified
    assert not item(shows(("step", False)), HOLDS, proof=HOLDS).run().verified
    assert not item(shows(("step", True)), HOLDS, proof=NONE).run().verified


def test_nothing_is_said_of_an_item_whose_check_fails():
    finding = item(shows(("measured", False)), HOLDS).run()
    assert [j.verdict for j in (finding.printed, finding.meant, finding.proof)] == ["open"] * 3


@pytest.mark.parametrize("wrong", [1, 5, 9])
def test_what_theory_says_is_checked_at_every_size(wrong):
    trial = Trial()
    trial.by_theorem("a law", "a reason", lambda n: n != wrong)
    assert [holds for _, holds in trial.facts].count(False) == 1
    assert len(trial.facts) == 9
    assert trial.evidence.startswith(
        "by theorem (a reason), checked exhaustively for n <= 9; FAILED: a law, n ="
    )


def without_numbers(text):
    """The page shows numbers of one run; another machine may round them differently."""
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", text)


def test_the_page_of_the_documentation_says_what_the_items_say(findings):
    page = (Path(__file__).parents[2] / "docs" / "theorems.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    libraries = {one.library for row in TABLE2 for one in row.implementations}
    installed = all(find_spec(library) for library in libraries)
    for name, finding in findings.items():
        if "measured on" in finding.evidence and not installed:
            continue  # the page names every implementation
        columns = [str(j) for j in (finding.printed, finding.meant, finding.proof)]
        cells = [text.replace("|", "&#124;") for text in (finding.paper, *columns, finding.corrected)]
        row = f"| {name} | {' | '.join('-' if cell == 'none' else cell for cell in cells)} |"
        assert without_numbers(row) in map(without_numbers, lines), row
