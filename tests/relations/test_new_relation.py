"""Adding a relation is adding its file: a toy one in a temporary directory answers every question."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import make_dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.attention import attend, plan
from erlangen.errors import ParameterError
from erlangen.relations import catalogue
from erlangen.relations.parse import parse
from erlangen.show.drawing import drawing
from erlangen.symmetry import stack_symmetry, symmetry, translations
from erlangen.taxonomy import classify, verify
from erlangen.testing.strategies import leaves
from relation_oracle import PAIR
from relation_oracle import dense as oracle
from relation_questions import QUESTIONS, drawn

TOY = '''
from dataclasses import dataclass
from typing import final

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.catalogue import written
from erlangen.relations.relation import Relation


@written
@final
@dataclass(frozen=True)
class Toy(Relation):
    """Each position reads itself and its parent (i - 1) // arity, as in a heap."""

    arity_: int = 2

    def _bind(self, site):
        i = site.positions  # below zero where there are more queries than keys
        rows = np.concatenate([np.arange(i.size)] * 2)
        keys = np.concatenate([i, np.maximum((i - 1) // self.arity_, 0)])
        edges = np.stack([rows, keys], axis=1)[(np.concatenate([i, i]) >= 0)]
        return Neighborhoods.from_edges(i.size, site.keys, edges)

    def _holds(self, i, j, keys):
        parent = (i - 1) // self.arity_
        return (j == i) | (j == parent * (parent >= 0))
'''

N = 7


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """The toy, whose file lies in a folder of the package: it is found, as every other file is."""
    (tmp_path / "toy_tree.py").write_text(TOY)
    monkeypatch.setattr(er.relations, "__path__", [*er.relations.__path__, str(tmp_path)])
    catalogue.discover(er.relations.__path__, er.relations.__name__)
    yield catalogue.WRITTEN["Toy"](2)
    del catalogue.WRITTEN["Toy"], sys.modules["erlangen.relations.toy_tree"]


def dense(n: int) -> np.ndarray:
    found = np.eye(n, dtype=bool)
    for i in range(1, n):
        found[i, (i - 1) // 2] = True
    return found


def test_it_binds_holds_and_combines(tree):
    i, j = np.indices((N, N))
    assert np.array_equal(tree.on(N).dense(), dense(N))
    assert np.array_equal(tree.on(2, N).dense(), dense(N)[-2:])
    assert np.array_equal(tree.holds(i, j, N), dense(N))
    assert np.array_equal(tree.T.on(N).dense(), dense(N).T)
    assert np.array_equal((~tree & er.Causal()).on(N).dense(), ~dense(N) & np.tri(N, dtype=bool))
    assert np.array_equal((tree @ tree).on(N).dense(), (dense(N).astype(int) @ dense(N)) > 0)
    assert tree & tree == tree == tree | tree
    assert ~~tree == tree == tree.T.T
    assert (tree.own_sizes, tree.grid(2, 3), tree.support, tree.weights) == (None, ((tree,),), tree, None)


def test_it_is_read_from_text(tree):
    assert parse(repr(tree)) == tree
    assert parse("PerHead([Toy(2), Causal()]) & Toy(3)") == er.PerHead([tree, er.Causal()]) & type(tree)(3)


def test_its_symmetry_and_verdict(tree):
    assert symmetry(tree, N).order == stack_symmetry([tree, er.Full()], N).order == 8
    assert not translations(tree, N).toeplitz
    assert translations(tree, N).integers is None
    bias = classify(tree, N)
    assert bias.kind == "sparse"
    assert bias.properties["acyclic"]
    assert bias.symmetry.order == 8
    assert all(verify(proof, tree, N) for proof in bias.certificates.values())
    assert classify(tree).kind is None  # nothing is said of every size that was not told


def test_it_is_drawn(tree, tmp_path):
    shown = drawing(tree, N)
    assert "edges 13 of 49" in shown.text()
    assert json.dumps(shown.facts())
    shown.save(tmp_path / "tree.png")
    assert (tmp_path / "tree.png").stat().st_size > 1000
    assert drawing(er.ALiBi(1, relation=tree), N).facts()["edges"] == 13


def test_attention_over_it(tree):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, N, 8, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, torch.from_numpy(dense(N)))
    tried = []
    for row in ("reference", "edges", "gather", "tiles", "sdpa", "native"):
        try:
            out = attend(q, k, v, tree, backend=row)
        except er.errors.BackendError:
            continue
        tried.append(row)
        torch.testing.assert_close(out, expected)
    assert len(tried) >= 4, tried
    assert plan(q, k, v, tree).backend in tried


def test_an_audit_that_expects_it(tree):
    model = er.Attention(8, 2, relation=tree)
    inputs = torch.randn(1, N, 8)
    assert er.audit(model, inputs, expect=tree).verdict == "holds"
    assert er.audit(model, inputs, expect=er.Identity()).verdict == "violated"


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_what_is_asked_of_every_relation(tree, question):
    @given(st.data(), st.integers(1, 6))
    @settings(max_examples=5, deadline=None)
    def ask(data, n):
        QUESTIONS[question](*drawn(data, "Toy", n))

    ask()


def test_one_line_is_its_oracle_and_it_is_drawn_with_the_others(tree, monkeypatch):
    monkeypatch.setitem(PAIR, type(tree), lambda r, i, j, n: i == j or (i > 0 and j == (i - 1) // r.arity_))

    assert find(leaves(6), lambda leaf: type(leaf) is type(tree)) == tree
    for queries in range(7):
        assert np.array_equal(tree.on(queries, 6).dense(), oracle(tree, queries, 6))


def test_one_more_file_is_one_more_name(tmp_path):
    """In a copy of the package, into which nothing but the file of the toy was written."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    copy = shutil.copytree(Path(er.__file__).parent, tmp_path / "erlangen", ignore=ignored)
    (copy / "relations" / "toy_tree.py").write_text(TOY)
    code = """
        import sys; from importlib.machinery import PathFinder; sys.meta_path.insert(0, PathFinder)
        sys.path.insert(0, sys.argv[1])
        import erlangen as er; from erlangen.relations import Toy; from erlangen.relations.parse import parse
        from erlangen.testing.strategies import LEAVES
        assert er.__file__.startswith(sys.argv[1]) and er.Toy is Toy in LEAVES and "Toy" in er.__all__
        assert parse("Toy(3) & Causal()").on(4) == (Toy(3) & er.Causal()).on(4)
        print("hypothesis" in sys.modules, "torch" in sys.modules)
    """
    lines = "\n".join(line.strip() for line in code.splitlines())
    told = subprocess.run(
        [sys.executable, "-c", lines, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == ["True", "False"]


def test_two_relations_cannot_have_one_name(tree):
    with pytest.raises(ValueError, match="called Toy"):
        catalogue.written(type("Toy", (), {}))


def test_a_parameter_may_not_hide_what_every_relation_answers():
    hiding = make_dataclass("Hiding", [("arity", int)], bases=(er.Relation,), frozen=True)
    with pytest.raises(ParameterError, match="Hiding has a parameter called 'arity'"):
        catalogue.written(hiding)
    assert "Hiding" not in catalogue.WRITTEN
