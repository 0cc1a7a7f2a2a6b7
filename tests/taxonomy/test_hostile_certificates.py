"""Certificates from outside: odd sizes, depths and lengths are refused, honest ones are checked quickly."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest

import erlangen as er
from erlangen.errors import DataError
from erlangen.taxonomy import Certificate, classify, count_automorphisms, verify
from erlangen.taxonomy.count_automorphisms import full_order, generated_order

GOOD = {"claim": "transitive", "value": True, "n": 4, "data": {}}


def test_the_twin_is_accepted():
    assert verify(GOOD, er.Causal())
    assert verify(GOOD, er.Causal(), n=4)
    assert not verify(GOOD, er.Causal(), n=5)
    assert not verify(GOOD, er.Causal().on(5))


@pytest.mark.parametrize("size", [float("nan"), float("inf"), 4.0, True, "4", None, -1, -(10**30), [4]])
def test_a_size_is_an_integer(size):
    assert not verify(Certificate("transitive", True, {}, size=size), er.Causal().on(4))
    assert not verify(Certificate("transitive", True, {}, size=size), er.Causal())
    assert not verify({**GOOD, "n": size}, er.Causal().on(4))


@pytest.mark.parametrize("field", ["claim", "value", "every_size", "data"])
@pytest.mark.parametrize("odd", [None, 1, float("nan"), [], ["transitive"], {"a": 1}])
def test_every_field_has_its_type(field, odd):
    if field == "data" and odd == {"a": 1}:
        odd = {"order": None}
    made = Certificate(**{"claim": "transitive", "value": True, "data": {}, "size": 4, field: odd})
    assert not verify(made, er.Causal().on(4))


@pytest.mark.parametrize("size", [2**31 - 3, 10**9, 5_000, 10**400])
def test_no_certificate_decides_how_much_is_bound(size):
    with pytest.raises(DataError, match="bind it yourself"):
        verify({**GOOD, "n": size}, er.Dilated(2))
    assert not verify({**GOOD, "n": size}, er.Dilated(2).on(4))


def test_a_size_at_which_the_relation_does_not_exist_proves_nothing():
    assert not verify({**GOOD, "n": 3}, er.Documents([2, 2]))
    assert verify({**GOOD, "n": 4}, er.Documents([2, 2]))


DEEP = "[" * 100_000
TEXTS = [
    DEEP, '{"claim":' + DEEP, '{"a":' * 50_000, "9" * 5_000, '{"n": ' + "9" * 5_000 + "}", "NaN", "null", "",
    '{"claim": "total", "value": true, "n": NaN, "data": {}}',
    '{"claim": "total", "value": true, "n": 1e400}',
    b"\xff\xfe", b"\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_no_certificate(text):
    with pytest.raises(DataError):
        Certificate.from_json(text)


def nested(depth, inner):
    for _ in range(depth):
        inner = {"fails": inner}
    return inner


@pytest.mark.parametrize("claim", sorted({"total-order", "transitive", "symmetry", "previous", "connected"}))
def test_deep_and_long_data_are_refused(claim):
    long = 10**5000
    for data in (
        nested(50_000, {}), {"order": [long]}, {"order": {"progressions": [[0, long, 2]]}}, {"proof": long},
        {"proof": "search", "order": "1", "generators": [[0]] * 10**6}, {"fails": [[[]]] * 9},
        {"proof": "search", "order": "None", "generators": []}, {"parents": nested(5000, [])},
    ):  # fmt: skip
        assert not verify({"claim": claim, "value": True, "n": 5, "data": data}, er.Ring(1, 1).on(5))
        assert not verify({"claim": claim, "value": False, "n": 5, "data": data}, er.Ring(1, 1).on(5))


def test_a_law_inside_a_law_goes_one_step_deep():
    law = {"claim": "total", "value": False, "n": 5, "data": {"pair": [0, 2]}}
    assert verify(
        {"claim": "total-order", "value": False, "n": 5, "data": {"fails": law}}, er.Ring(1, 1).on(5)
    )
    inside = {"claim": "total-order", "value": False, "n": 5, "data": {"fails": law}}
    assert not verify({**inside, "data": {"fails": inside}}, er.Ring(1, 1).on(5))


HONEST = [
    er.Graph([(0, 1)], nodes=24), er.Blocks(2), er.Blocks(12), er.Blocks(8), er.Dilated(3), ~er.Blocks(4),
    er.Ring(1, 1), er.Grid((4, 6), 1), er.Dilated(2) | er.Blocks(2), er.Random(3, 1),
    er.Graph([(0, 1), (2, 3)], nodes=24),
]  # fmt: skip


@pytest.mark.parametrize("relation", HONEST, ids=repr)
def test_honest_certificates_at_the_largest_size_take_few_steps(relation, monkeypatch):
    """Counting all automorphisms refined thousands of colourings: 5 to 21 seconds."""
    refined = []
    refine = count_automorphisms._refine
    monkeypatch.setattr(count_automorphisms, "_refine", lambda *given: refined.append(1) or refine(*given))
    for claim, proof in classify(relation, 24).certificates.items():
        assert verify(json.loads(proof.to_json()), relation.on(24)), claim
    assert len(refined) < 200


def generated(some, n):
    group, waiting = {tuple(range(n))}, [tuple(range(n))]
    while waiting:
        g = waiting.pop()
        for h in some:
            if (made := tuple(h[i] for i in g)) not in group:
                group.add(made)
                waiting.append(made)
    return group


@pytest.mark.parametrize("seed", range(40))
def test_generators_prove_the_whole_group_or_nothing(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    mask = rng.random((n, n)) < rng.choice([0.1, 0.5, 0.9])
    if seed % 2:
        mask = mask | mask.T
    group = [pi for pi in permutations(range(n)) if np.array_equal(mask[np.ix_(pi, pi)], mask)]
    assert full_order(mask, [np.array(pi) for pi in group]) == len(group)
    for size in (0, 1, 2):
        some = [group[i] for i in rng.integers(len(group), size=size)]
        spanned = generated(some, n)
        assert generated_order([np.array(pi) for pi in some], n) == len(spanned)
        assert full_order(mask, [np.array(pi) for pi in some]) == (
            len(group) if len(spanned) == len(group) else None
        )
    strange = np.array(rng.permutation(n))
    if tuple(strange.tolist()) not in group:
        assert full_order(mask, [*map(np.array, group), strange]) is None
