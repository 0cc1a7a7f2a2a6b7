"""The verdict on weighted relations: the support's kind, the weights' symmetry."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.errors import ParameterError
from erlangen.relations import (
    ALiBi,
    Causal,
    Decay,
    Distance,
    Full,
    Graph,
    PerHead,
    RelativeBias,
    Ring,
    Weighted,
    Window,
)
from erlangen.taxonomy import classify
from erlangen.taxonomy.verify import verify

SQUARE = Graph([(i, (i + s) % 4) for i in range(4) for s in (1, 3)], nodes=4)


@pytest.mark.parametrize(
    ("weighted", "n", "kind", "group", "refined"),
    [
        (ALiBi([0.5, 0.25]), 6, "total-order", "1", False),
        (ALiBi(0.5, relation=Full()), 6, "full", "Z2", True),
        (ALiBi(0, relation=Full()), 6, "full", "S6", False),
        (Decay(0.9, relation=Window(2)), 6, "previous", "1", False),
        (Decay(0.9, relation=Window(1, 1)), 6, "sparse", "Z2", False),
        (Distance(SQUARE, [0, -1, -2]), None, "full", "S2 wr S2", True),
        (Weighted(Ring(1, 1), offsets={0: 1}), 7, "sparse", "D7", False),
        (RelativeBias([0, 1, 2, 3]), 5, "full", "1", True),
    ],
    ids=str,
)
def test_the_support_is_classified_and_the_weights_refine(weighted, n, kind, group, refined):
    verdict = classify(weighted, n)
    plain = classify(weighted.support, verdict.n)
    assert verdict.kind == plain.kind == kind
    assert verdict.properties == plain.properties
    assert verdict.symmetry.name == group
    assert verdict.weights.refined is refined
    assert verdict.relation == repr(weighted)
    # A certificate of the symmetry is only kept where it proves the weighted one too.
    assert ("symmetry" in verdict.certificates) == (plain.symmetry.order == 1)
    assert all(verify(proof, weighted.support.on(verdict.n)) for proof in verdict.certificates.values())
    assert plain.weights is None
    assert "weights" not in plain.as_dict()


def test_for_every_size():
    everywhere = classify(ALiBi(0.5))
    assert (everywhere.symmetry.name, everywhere.evidence, everywhere.from_n) == ("1", "symbolic", 2)
    assert classify(ALiBi([0, 0.5], relation=Full())).symmetry.name == "Z2"
    assert classify(Decay(0.5, relation=Full())).symmetry.order == 2
    assert classify(Decay(1, relation=Full())).symmetry is None
    open_question = classify(RelativeBias([0, 1, 2, 3]))
    assert open_question.symmetry is None
    assert open_question.weights.refined is None
    assert "can only refine" in str(open_question.weights)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_what_is_said_for_every_size_holds_at_each(n):
    for weighted in (ALiBi(0.5), ALiBi(-1, relation=Full()), Decay([1, 0.5], relation=Full())):
        assert classify(weighted).symmetry.order == classify(weighted, n).symmetry.order


def test_the_command():
    run = CliRunner().invoke(app, ["classify", "ALiBi([0.5, 0.25], relation=Full())", "--n", "5"])
    assert run.exit_code == 0
    assert "weights    Toeplitz, 2 heads; they refine the symmetry of Full(), S5, order 120" in run.stdout
    assert "symmetry   Z2, order 2" in run.stdout
    told = json.loads(CliRunner().invoke(app, ["classify", "ALiBi(0.5)", "--n", "5", "--json"]).stdout)
    assert told["weights"] == {
        "support": "Causal()",
        "form": "Toeplitz",
        "heads": 1,
        "support_symmetry": "1, order 1",
        "refined": False,
    }


def test_several_supports_are_refused():
    with pytest.raises(ParameterError, match="holds several"):
        classify(ALiBi(1, relation=PerHead([Causal(), Full()])), 4)
