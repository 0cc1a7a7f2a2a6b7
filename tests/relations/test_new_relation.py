"""Adding a relation is adding its file: a toy one in a temporary directory answers every question."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.attention import attend, plan
from erlangen.relations import registry
from erlangen.relations.parse import parse
from erlangen.show.drawing import drawing
from erlangen.symmetry import stack_symmetry, symmetry, translations
from erlangen.taxonomy import classify, verify

TOY = '''
from dataclasses import dataclass
from typing import final

import numpy as np

from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.registry import written
from erlangen.relations.relation import Relation


@written
@final
@dataclass(frozen=True)
class Tree(Relation):
    """Each position reads itself and its parent (i - 1) // arity, as in a heap."""

    arity_: int = 2

    def _bind(self, site):
        i = site.positions
        rows = np.concatenate([np.arange(i.size)] * 2)
        keys = np.concatenate([i, np.maximum((i - 1) // self.arity_, 0)])
        return Neighborhoods.from_edges(i.size, site.keys, np.stack([rows, keys], axis=1))

    def _holds(self, i, j, keys):
        parent = (i - 1) // self.arity_
        return (j == i) | (j == parent * (parent >= 0))
'''

N = 7


@pytest.fixture
def tree(tmp_path, monkeypatch):
    path = tmp_path / "toy_tree.py"
    path.write_text(TOY)
    spec = importlib.util.spec_from_file_location("toy_tree", path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "toy_tree", module)
    spec.loader.exec_module(module)
    yield module.Tree(2)
    del registry.WRITTEN["Tree"]


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
    assert parse("PerHead([Tree(2), Causal()]) & Tree(3)") == er.PerHead([tree, er.Causal()]) & type(tree)(3)


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


def test_two_relations_cannot_have_one_name(tree):
    with pytest.raises(ValueError, match="called Tree"):
        registry.written(type("Tree", (), {}))


@pytest.mark.parametrize("name", sorted(registry.WRITTEN))
def test_every_relation_is_public_and_in_the_documents(name):
    assert name in er.relations.__all__ or name == "Fano"
    assert getattr(er, name) is registry.WRITTEN[name]
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    assert any(f"{name}(" in page.read_text() for page in pages)
