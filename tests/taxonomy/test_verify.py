"""The checker: independent of the classifier, and it rejects."""

from __future__ import annotations

import ast
import inspect
import json
import sys
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen.taxonomy.certificates
import erlangen.taxonomy.count_automorphisms
import taxonomy_brute as brute
from erlangen.errors import DataError, ParameterError
from erlangen.relations import (
    Bipartite,
    Causal,
    Documents,
    Empty,
    FromMask,
    Full,
    Graph,
    Identity,
    Neighborhoods,
    Ring,
    Window,
)
from erlangen.taxonomy import Certificate, claims, classify, verify
from erlangen.taxonomy.certificates import decode, encode
from erlangen.taxonomy.count_automorphisms import count_automorphisms, generated_order
from erlangen.taxonomy.ranges import extreme
from erlangen.taxonomy.verify import order_of

CHECKED = [
    (Causal(), 5),
    (Window(lookback=2), 6),
    (Window(lookback=1, lookahead=1), 5),
    (Full(), 4),
    (Identity(), 4),
    (Empty(), 4),
    (Bipartite(2, 3), 5),
    (Documents([2, 3]), 5),
    (Ring(1, 0), 5),
    (Graph([(0, 1), (1, 2), (3, 1)], nodes=5), 5),
    (Graph([(1, 0), (2, 0), (3, 1)], nodes=4), 4),
    (FromMask(Causal().on(5).permute([3, 0, 4, 1, 2]).dense()), 5),
    (FromMask(Window(lookback=2).on(6).permute([3, 0, 4, 1, 2, 5]).dense()), 6),
    (Causal() - Graph([(4, 1)]), 6),
    (Identity() | Graph([(4, 1)]), 6),
    (Causal() & Graph([(1, 0), (2, 1), (3, 2), (3, 1)]), 4),
]


def changes(value, n):
    """Ways to corrupt a value: other numbers, orders, lengths, words, types."""
    match value:
        case bool():
            yield not value
        case int():
            yield from {v for v in (*range(-1, n + 1), value + n) if v != value}
            yield str(value)
        case str():
            yield from {"ascending", "descending", "path", "zeros", "nonsense", "2", ""} - {value}
        case list():
            yield value[:-1]
            yield [*value, 0]
            yield value[::-1]
            yield value[1:] + value[:1]
            for index, item in enumerate(value):
                for other in changes(item, n):
                    yield [*value[:index], other, *value[index + 1 :]]
            yield None
        case dict():
            for key, item in value.items():
                yield {k: v for k, v in value.items() if k != key}
                for other in changes(item, n):
                    yield {**value, key: other}
            yield {**value, "more": 0}
        case _:
            yield 0


@pytest.mark.parametrize(("relation", "n"), CHECKED, ids=lambda value: str(value)[:40])
def test_no_corruption_proves_anything_false(relation, n):
    """Every single change of every certificate is rejected, unless what it then says is true."""
    bound = relation.on(n)
    dense = bound.dense()
    truth = {**brute.properties(dense), **brute.kinds(dense)}
    automorphisms = brute.automorphisms(dense)
    rejected = 0
    for proof in classify(relation, n).certificates.values():
        record = proof.as_dict()
        assert verify(record, bound)
        for other in changes(record, n):
            if not verify(other, bound):
                rejected += 1
            elif other["claim"] == "symmetry":
                assert other["value"], (record, other)
                assert order_of(other["data"]) == automorphisms, (record, other)
            else:
                assert truth[other["claim"]] == other["value"], (record, other)
    assert rejected > 300


@pytest.mark.parametrize(("relation", "n"), CHECKED, ids=lambda value: str(value)[:40])
def test_the_opposite_claim_is_always_rejected(relation, n):
    bound = relation.on(n)
    for proof in classify(relation, n).certificates.values():
        for data in (proof.data, {}):
            assert not verify(Certificate(proof.claim, not proof.value, data, n), bound)


def test_every_kind_of_evidence_occurs_in_these_tests():
    seen = {
        (name, proof.value, tuple(sorted(proof.data)))
        for relation, n in CHECKED
        for name, proof in classify(relation, n).certificates.items()
    }
    assert {
        ("previous", False, ("missing",)),
        ("previous", False, ("cycle",)),
        ("previous", False, ("at", "order", "present")),
        ("previous", False, ("missing", "order", "present")),
        ("previous", True, ("order", "p")),
        ("bipartite", True, ("encoder",)),
        ("total-order", False, ("fails",)),
        ("unique_topological_order", False, ("cycle",)),
        ("unique_topological_order", False, ("at", "order")),
        ("bipartition", True, ("sides",)),
        ("bipartition", False, ("odd_cycle",)),
        ("connected", True, ("parents",)),
        ("connected", False, ("part",)),
        ("transitive", True, ("order",)),
        ("transitive", False, ("triple",)),
    } <= seen
    proofs = {
        classify(relation, n).certificates["symmetry"].data["proof"]
        for relation, n in CHECKED
        if "symmetry" in classify(relation, n).certificates
    }
    assert proofs == {"unique-order", "indiscernible", "blocks", "search"}


@pytest.mark.parametrize(
    ("relation", "n", "data"),
    [
        (Ring(1, 0), 5, {"proof": "search", "order": "10", "generators": [[1, 2, 3, 4, 0]]}),
        (Ring(1, 0), 5, {"proof": "search", "order": "1", "generators": []}),
        (Ring(1, 0), 5, {"proof": "search", "order": "5", "generators": []}),
        (Ring(1, 0), 5, {"proof": "search", "order": "5", "generators": [[1, 0, 2, 3, 4]]}),
        (Ring(1, 0), 5, {"proof": "search", "order": "5", "generators": [[1, 1, 2, 3, 4]]}),
        (Ring(1, 1), 5, {"proof": "search", "order": "5", "generators": [[1, 2, 3, 4, 0]]}),
        (Ring(1, 0), 5, {"proof": "unique-order", "order": "1", "topological": "ascending"}),
        (Ring(1, 0), 5, {"proof": "indiscernible", "order": {"factorials": [5]}}),
        (Full(), 5, {"proof": "indiscernible", "order": {"factorials": [4]}}),
        (Bipartite(2, 3), 5, {"proof": "blocks", "order": {"factorials": [3, 2]}, "encoder": [0, 1]}),
        (Bipartite(2, 3), 5, {"proof": "blocks", "order": {"factorials": [3, 2]}, "encoder": [0, 1, 2]}),
        (Causal(), 5, {"proof": "trust me", "order": "1", "generators": []}),
    ],
)
def test_wrong_symmetries_are_rejected(relation, n, data):
    assert not verify(Certificate("symmetry", True, data, n), relation.on(n))


def test_right_symmetries_are_accepted():
    ring = {"proof": "search", "order": "5", "generators": [[1, 2, 3, 4, 0]]}
    assert verify(Certificate("symmetry", True, ring, 5), Ring(1, 0).on(5))
    assert not verify(Certificate("symmetry", False, ring, 5), Ring(1, 0).on(5))
    assert not verify(Certificate("symmetry", True, ring, 5), Ring(1, 1).on(5))


def test_sizes_must_fit():
    proof = classify(Causal(), 5).certificates["total"]
    assert verify(proof, Causal())
    assert not verify(proof, Causal().on(6))
    assert not verify(proof, Causal().on(4))
    everywhere = classify(Causal()).certificates["total"]
    assert verify(everywhere, Causal().on(60))
    assert not verify(everywhere, Causal().on(1))
    with pytest.raises(ParameterError, match="verify takes"):
        verify(proof, "Causal()")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record", [None, 3, [], {}, {"claim": "total"}, {"claim": "x", "value": 1, "n": 2, "data": {}}]
)
def test_what_is_no_certificate_is_rejected(record):
    assert not verify(record, Causal().on(2))
    with pytest.raises(DataError):
        Certificate.from_dict(record)


@pytest.mark.parametrize("huge", [10**30, -(10**30), 2**62])
def test_numbers_beyond_any_size_are_rejected(huge):
    for data in ([huge, 0, 1], {"progressions": [[0, huge, 3]]}, {"progressions": [[huge, 1, 3]]}):
        assert not verify(Certificate("acyclic", True, {"order": data}, 3), Causal().on(3))
    assert not verify(Certificate("symmetric", False, {"present": [huge, 0]}, 3), Causal().on(3))
    assert not verify(Certificate("total", True, {}, -3), Causal())


def test_unknown_claims_are_rejected():
    assert not verify(Certificate("beautiful", True, {}, 3), Causal().on(3))


def test_the_checker_imports_nothing_of_the_classifier():
    allowed = {
        "erlangen.taxonomy.claims",
        "erlangen.taxonomy.count_automorphisms",
        "erlangen.taxonomy.certificates",
        "erlangen.errors",
        "erlangen.relations",
    }
    modules = (
        sys.modules["erlangen.taxonomy.verify"],  # the package has a function of this name
        claims,
        erlangen.taxonomy.count_automorphisms,
        erlangen.taxonomy.certificates,
    )
    for module in modules:
        imported = set()
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                imported.add(node.module)
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        assert {name for name in imported if name and name.startswith("erlangen")} <= allowed


# --------------------------------------------------------------------- its parts


@given(st.lists(st.integers(-5, 200), max_size=40), st.booleans())
@settings(deadline=None)
def test_arrays_survive_json(values, ordered):
    array = np.array(sorted(values) if ordered else values, np.int64)
    text = json.dumps(encode(array, array.size))
    assert decode(json.loads(text), array.size).tolist() == array.tolist()


@given(st.integers(1, 60), st.integers(-3, 3), st.integers(1, 60), st.integers(-3, 3))
@settings(deadline=None)
def test_progressions_survive_json(a, step, b, other):
    array = np.concatenate([np.arange(a) * step, 7 + np.arange(b) * other])
    assert decode(json.loads(json.dumps(encode(array, a + b))), a + b).tolist() == array.tolist()


@pytest.mark.parametrize(
    "value", ["up", [1, 2, 3, 4], [True], [0.5], {"progressions": [[0, 1, 9]]}, None, {"a": 1}]
)
def test_arrays_that_are_none_are_refused(value):
    with pytest.raises(DataError):
        decode(value, 3)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.data())
@settings(deadline=None)
def test_extremes_of_ranges(values, data):
    n = len(values)
    spans = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(1, n)), min_size=1))
    spans = [(a, min(n, a + length)) for a, length in spans]
    starts, stops = (np.array(side) for side in zip(*spans, strict=True))
    for operation, expected in ((np.maximum, max), (np.minimum, min)):
        got = extreme(np.array(values), starts, stops, operation)
        assert got.tolist() == [expected(values[a:b]) for a, b in spans]


def test_automorphisms_are_counted_from_the_definition():
    rng = np.random.default_rng(0)
    for density in (0.1, 0.3, 0.5, 0.9):
        for n in (3, 4, 5):
            mask = rng.random((n, n)) < density
            every = [pi for pi in map(list, permutations(range(n))) if (mask[np.ix_(pi, pi)] == mask).all()]
            assert count_automorphisms(mask) == len(every)
            assert generated_order([np.array(pi) for pi in every], n) == len(every)


def test_orders_of_generated_groups():
    assert generated_order([], 4) == 1
    assert generated_order([np.array([1, 2, 3, 0])], 4) == 4
    assert generated_order([np.array([1, 2, 3, 0]), np.array([3, 2, 1, 0])], 4) == 8
    assert generated_order([np.array([1, 2, 0, 3]), np.array([0, 2, 3, 1])], 4) == 12
    assert [
        count_automorphisms(np.array(bits).reshape(2, 2)) for bits in product((False, True), repeat=4)
    ].count(2) == 4


def taxonomy_imports(module: str, seen: set[str]) -> set[str]:
    """The modules of the taxonomy that one of them stands on, read from the source."""
    source = (Path(erlangen.taxonomy.__file__).parent / f"{module}.py").read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("erlangen.taxonomy"):
            names = (
                [node.module.split(".")[-1]] if node.module.count(".") == 2 else [a.name for a in node.names]
            )
            for name in set(names) - seen:
                seen |= {name} | taxonomy_imports(name, seen | {name})
    return seen


def test_nothing_is_shared_with_the_classifier():
    finder, checker = taxonomy_imports("classifier", set()), taxonomy_imports("verify", set())
    assert {"ranges", "orders_and_forests", "ten_properties", "kinds"} <= finder
    assert {"claims", "count_automorphisms"} <= checker
    assert finder & checker == {"certificates"}


@given(data=st.data())
def test_extremes_of_many_runs_are_those_of_each(data):
    n = data.draw(st.integers(1, 40))
    pairs = st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=60)
    bound = Neighborhoods.from_edges(n, n, data.draw(pairs))
    values = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=n, max_size=n)))
    for reduce in (np.maximum, np.minimum):
        one_by_one = claims._among(values, bound, reduce)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(claims, "FEW_RUNS", 0)
            assert np.array_equal(claims._among(values, bound, reduce), one_by_one)
