"""Toeplitz masks, cores and the prefix law, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import (
    Blocks,
    Causal,
    Dilated,
    Documents,
    FromMask,
    Full,
    Identity,
    Neighborhoods,
    Prefix,
    Random,
    Ring,
    Window,
)
from erlangen.symmetry import translations
from erlangen.testing.strategies import relations

sizes = st.shared(st.integers(1, 7), key="n")


@settings(max_examples=60, deadline=None)
@given(sizes.flatmap(lambda n: st.tuples(st.just(n), relations(n, 3))))
def test_against_the_definitions(drawn):
    n, relation = drawn
    mask = relation.on(n).dense()
    found = translations(relation, n)
    assert found.toeplitz == all(mask[i + 1, j + 1] == mask[i, j] for i in range(n - 1) for j in range(n - 1))
    rows = [set(np.flatnonzero(row).tolist()) for row in mask]
    for m, core in found.cores().items():
        expected = [i for i in range(n) if 0 <= i + m < n and rows[i + m] == {j + m for j in rows[i]}]
        assert core.tolist() == expected
    if any(j > i for i in range(n) for j in rows[i]):
        assert not found.prefix
    assert translations(relation.on(n)).prefix == all(j <= i for i in range(n) for j in rows[i])


@pytest.mark.parametrize("n", [2, 5, 9])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_theorem_seven(n, p):
    for m in range(1, n):
        assert translations(Window(lookback=p), n).core(m).tolist() == list(range(p, n - m))
        assert translations(Causal(), n).core(m).size == 0
        assert translations(Causal(), n).core(-m).size == 0
    assert translations(Causal(), n).core(0).tolist() == list(range(n))


@pytest.mark.parametrize(
    ("relation", "holds"),
    [
        (Causal(), True),
        (Window(2), True),
        (Causal() & Dilated(2), True),
        (Causal() & Blocks(3), True),
        (Identity(), True),
        (Full(), False),
        (Prefix(2), False),
        (Ring(1, 0), False),
        (Causal() & Ring(1, 0), True),
        (Causal() & Ring(0, 1), False),  # another row is last on k positions
        (Causal() & Random(2, seed=0), False),  # the draw depends on the number of keys
    ],
)
def test_prefix_law(relation, holds):
    found = translations(relation, 8)
    assert found.prefix is holds
    assert (found.prefix_counterexample is None) is holds
    consistent = all(relation.on(k) == relation.on(8).restrict(range(k), range(k)) for k in range(1, 9))
    within = all(j <= i for i, j in relation.on(8).edges().tolist())
    assert holds is (consistent and within)


def test_on_the_integers():
    assert translations(Causal(), 4).integers == translations(Window(2), 4).integers == "Z"
    assert translations(Window(1, 1), 4).integers == "Z with reversals"
    assert translations(Identity(), 4).integers == "Sym(Z)"
    assert translations(Documents([2, 2])).integers is None
    assert translations(Causal().on(4)).integers is None


def test_bad_questions():
    with pytest.raises(SizeError, match="no size of its own"):
        translations(Causal())
    with pytest.raises(SizeError, match="one sequence"):
        translations(FromMask(np.ones((2, 3), bool)))
    with pytest.raises(SizeError, match="bound already"):
        translations(Causal().on(3), 4)
    with pytest.raises(ParameterError, match="takes an integer"):
        translations(Causal(), 3).core(0.5)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="a relation or neighborhoods"):
        translations([[1]], 1)  # type: ignore[arg-type]
    assert translations(Neighborhoods.from_edges(0, 0, [])).toeplitz
