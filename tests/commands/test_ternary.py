"""`erlangen show`, `classify`, `symmetry` and `audit` on ternary relations, as typed by a user."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.relations import Fano, Triangles, Triples, Window, WindowSquared
from erlangen.show.drawing import drawing
from erlangen.taxonomy import TernaryBias, classify


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_show_prints_numbers_shadow_and_pairs():
    result = run("show", "Fano()")
    assert result.exit_code == 0
    assert "triples 42 of 343" in result.stdout
    assert "  0  (1, 2) (2, 1) (3, 4) (4, 3) (5, 6) (6, 5)" in result.stdout


def test_show_as_json():
    told = json.loads(run("show", "WindowSquared(lookback=1)", "--n", "4", "--json").stdout)
    assert (told["arity"], told["positions"], told["triples"], told["shadow_edges"]) == (3, 4, 13, 7)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_show_draws(tmp_path, ending):
    path = tmp_path / f"plane.{ending}"
    result = run("show", "Lines(AffinePlane(3))", "--out", str(path))
    assert result.exit_code == 0, result.output
    assert path.stat().st_size > 5000


def test_pictures_of_large_and_of_empty_relations(tmp_path):
    for number, relation in enumerate((WindowSquared(2, 2).on(900), Triples(3, []), Triples(2, [(0, 1, 1)]))):
        drawing(relation).save(tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").stat().st_size > 1000


def test_long_rows_are_cut_and_counted():
    text = drawing(WindowSquared(9), 8).text()
    assert "and 52 more" in text
    assert "pairs of keys" not in drawing(WindowSquared(1), 40).text()


def test_classify_says_what_is_meaningful():
    result = run("classify", "Fano()")
    assert result.exit_code == 0
    for told in ("arity 3, 42 triples", "order 168", "S7, order 5040", "not in T: (0, 1, 1)"):
        assert told in result.stdout
    told = json.loads(run("classify", "Fano()", "--json").stdout)
    assert told["symmetry"]["order"] == 168
    assert told["shadow"]["symmetry"]["order"] == 5040
    assert told["properties"]["fully_symmetric"] is True


@pytest.mark.parametrize(
    ("triples", "property", "witness"),
    [
        ([(0, 1, 2)], "symmetric", (0, 2, 1)),
        ([(0, 1, 2), (0, 2, 1)], "fully_symmetric", (1, 0, 2)),
        ([(0, 1, 2), (2, 1, 1)], "distinct", (2, 1, 1)),
        ([(0, 1, 2), (0, 2, 1)], "product", (0, 1, 1)),
    ],
)
def test_a_property_that_fails_has_a_witness(triples, property, witness):
    bias = classify(Triples(3, triples))
    assert isinstance(bias, TernaryBias)
    assert bias.properties[property] is False
    assert bias.witnesses[property] == witness


def test_properties_that_hold():
    product = classify(WindowSquared(2, 1), 6)
    assert product.properties["product"]
    assert product.properties["symmetric"]
    assert product.shadow.relation == repr(Window(2, 1))
    assert all(
        classify(Triangles(Window(9, 9)), 5).properties[name] for name in ("fully_symmetric", "distinct")
    )
    assert classify(Triples(3, [])).kind == "empty"
    assert str(classify(Fano())).startswith("Lines(ProjectivePlane(order=2)): ternary, 42 triples")


def test_symmetry():
    result = run("symmetry", "Fano()")
    assert result.exit_code == 0
    assert "order 168 (exact at n)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "WindowSquared(2)"), "no size of its own"),
        (("show", "Fano()", "--n", "8"), "7 positions"),
        (("show", "Fano()", "--keys", "7"), "--keys"),
        (("classify", "WindowSquared(2)"), "no size of its own"),
        (("symmetry", "Fano()", "--apart"), "one permutation"),
        (("audit", "missing.py:model", "--expect", "Fano()"), "ternary"),
    ],
)
def test_what_does_not_apply_is_refused(arguments, message):
    result = run(*arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
