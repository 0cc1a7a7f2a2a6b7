"""Groups and classifications go through pickles, copies and other processes as what they are."""

from __future__ import annotations

import copy
import pickle
from multiprocessing import get_context

import pytest

import erlangen as er

SYMMETRIC = [
    er.Full(), er.Causal(), er.Blocks(2), er.Documents([2, 2]), er.Ring(1, 1), er.Ring(1, 0), er.Ring(1, 3),
    er.Window(1, 1), er.Window(5, 5), er.Blocks(3) & er.Causal(), er.Bipartite(2, 4), er.Dilated(2),
    er.Graph([(0, 1), (1, 2), (2, 0)], nodes=6), er.ALiBi(1, relation=er.Full()), er.WindowSquared(1),
    er.Weighted(er.Full(), offsets={0: 1}), er.Fano(), ~er.Identity(),
]  # fmt: skip


@pytest.mark.parametrize("relation", SYMMETRIC, ids=repr)
@pytest.mark.parametrize("ask", [er.symmetry, er.classify])
def test_groups_and_classifications_are_pickled_and_copied(relation, ask):
    own = relation.own_sizes
    result = ask(relation, own[0] if own else 6)
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result), copy.copy(result)):
        assert repr(again) == repr(result)
        group, other = (result, again) if ask is er.symmetry else (result.symmetry, again.symmetry)
        if group is not None:
            identity = list(range(group.degree))
            for element in (identity, identity[::-1], identity[1:] + identity[:1]):
                assert other.contains(element) == group.contains(element)


def test_groups_apart_and_recovered_ones():
    for group in (er.symmetry(er.Full(), 2, keys=3, joint=False), er.symmetry(er.Causal(), 3, joint=False)):
        assert pickle.loads(pickle.dumps(group)).order == group.order


def test_groups_come_back_from_other_processes():
    with get_context("spawn").Pool(1) as pool:
        found = pool.map(er.symmetry, [er.Documents([2, 2]), er.Bipartite(2, 3)])
    assert [group.order for group in found] == [8, 12]
