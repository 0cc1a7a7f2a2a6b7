"""`erlangen classify`, `hierarchy` and `theorems` as a user calls them, and the chapter of the demo."""

from __future__ import annotations

import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.paper.demo import bias_proven as chapter
from erlangen.relations import Causal, Window
from erlangen.taxonomy import Certificate, verify


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_classify_as_json():
    result = run("classify", "Window(lookback=2)", "--n", "6", "--json")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert (record["kind"], record["p"], record["n"]) == ("previous", 2, 6)
    assert record["symmetry"] == {"name": "1", "order": 1, "generators": [], "evidence": "symbolic"}
    assert {"relations", "symmetry_group", "data_type"} <= set(record["table1"])
    assert record["properties"]["transitive"] is False
    bound = Window(lookback=2).on(6)
    assert record["certificates"].keys() >= record["properties"].keys()
    for certificate in record["certificates"].values():
        assert verify(Certificate.from_dict(certificate), bound)


def test_classify_for_every_size_as_json():
    record = json.loads(run("classify", "Causal()", "--json").stdout)
    assert (record["kind"], record["from_n"], record["evidence"]) == ("total-order", 2, "symbolic")
    assert all(verify(proof, Causal().on(11)) for proof in record["certificates"].values())


def test_classify_as_text():
    text = run("classify", "Window(lookback=8)", "--n", "8").stdout
    assert "total-order" in text
    assert "masked attention" in text
    assert "unique topological order" in text
    assert "order: ascending" in text
    assert "not decided without --n" in run("classify", "Dilated(3)").stdout
    assert "depends on the data" in run("classify", "Nearest(2)").stdout
    assert "also identity" in run("classify", "Causal()", "--n", "1").stdout


def test_huge_orders_are_not_printed_with_a_million_digits():
    text = run("classify", "Full()", "--n", "100000").stdout
    assert "100000!" in text
    assert len(text) < 3000


def test_classify_files(tmp_path):
    mask, table, edges = (tmp_path / name for name in ("mask.npy", "mask.csv", "edges.txt"))
    np.save(mask, np.tri(4, dtype=bool))
    table.write_text("1,0\n1,1\n")
    edges.write_text("0 1\n0 2\n")
    for arguments in (("--file", str(mask)), (str(mask),), ("--file", str(table))):
        assert json.loads(run("classify", *arguments, "--json").stdout)["kind"] == "total-order"
    record = json.loads(run("classify", "--file", str(edges), "--json").stdout)
    assert (record["kind"], record["n"]) == ("bipartite", 3)
    assert json.loads(run("classify", "--file", str(edges), "--n", "5", "--json").stdout)["n"] == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give either EXPRESSION or --file"),
        (("Causal()", "--file", "mask.npy"), "give either EXPRESSION or --file"),
        (("Casual()",), "Casual"),
        (("--file", "nothing.npy"), "no such file"),
        (("Bipartite(3, 4)", "--n", "8"), "7 joint positions"),
        (("PerHead([Causal(), Full()])", "--n", "3"), "one by one"),
        (("Causal()", "--n", "-1"), "-1"),
    ],
)
def test_classify_refuses(arguments, message):
    result = run("classify", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_malformed_mask_is_refused(tmp_path):
    path = tmp_path / "mask.csv"
    path.write_text("1,0\n1\n")
    result = run("classify", "--file", str(path))
    assert result.exit_code == 2
    assert "mask.csv" in result.stderr


def test_hierarchy(tmp_path):
    text = run("hierarchy").stdout
    for part in ("family (n = 6)", "Window > Masked", "S6 > S3 x S3", "ranks masked attention above strided"):
        assert part in text
    record = json.loads(run("hierarchy", "--order", "mask", "--n", "5", "--json").stdout)
    assert (record["order"], record["n"]) == ("mask", 5)
    assert len(json.loads(run("hierarchy", "--json").stdout)) == 3
    for name in ("hierarchy.svg", "hierarchy.png"):
        result = run("hierarchy", "--out", str(tmp_path / name))
        assert result.exit_code == 0
        assert (tmp_path / name).stat().st_size > 5_000
    for bad in (("--order", "size"), ("--n", "2"), ("--out", str(tmp_path / "h.pdf"))):
        assert run("hierarchy", *bad).exit_code == 2


def test_theorems_as_json_and_as_text():
    result = run("theorems", "--json")
    assert result.exit_code == 0
    findings = json.loads(result.stdout)
    assert len(findings) >= 20
    assert all(finding["verified"] for finding in findings)
    [one] = json.loads(run("theorems", "--item", "Theorem 6", "--json").stdout)
    assert (one["item"], one["holds_as_printed"]) == ("Theorem 6", False)
    assert one["counterexample"]
    assert (one["printed"]["verdict"], one["meant"]["verdict"]) == ("fails", "with correction")
    assert one["counterexample"] == one["printed"]["why"]
    text = run("theorems", "--item", "theorem 3").stdout
    assert "1 of 1 verified" in text
    assert "as printed holds   as meant holds   proof with correction" in text
    assert "Of the paper: as printed 1 holds; as meant 1 holds; proof 1 with correction." in text


def test_an_unknown_item_is_refused_with_the_list():
    result = run("theorems", "--item", "Theorem 66")
    assert result.exit_code == 2
    assert "Theorem 66" in result.stderr
    assert "Corollary 1" in result.stderr


def test_a_failing_item_is_reported(monkeypatch):
    monkeypatch.setattr(Causal, "_bind", lambda self, site: Window(lookback=1)._bind(site))
    result = run("theorems", "--item", "Theorem 3")
    assert result.exit_code == 1
    assert "NOT VERIFIED" in result.stdout


def test_the_chapter_of_the_demo(tmp_path):
    console = Console(record=True, width=200, file=open(tmp_path / "log", "w"))  # noqa: SIM115
    with console.file:
        chapter.chapter(console, tmp_path)
    text = console.export_text()
    assert "in the order [3, 0, 4, 1, 2]" in text
    assert "checked: True; with another triple: False" in text
    assert (tmp_path / "hierarchy.png").exists()
