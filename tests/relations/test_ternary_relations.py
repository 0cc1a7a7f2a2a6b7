"""Ternary relations: set laws against Python sets, constructors against their definitions, refusals."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import erlangen.relations as relations
from erlangen.errors import ErlangenError, ExpressionError, ParameterError, SizeError
from erlangen.relations import (
    AffinePlane,
    Causal,
    Fano,
    FromMask,
    Full,
    Geometry,
    Graph,
    Lines,
    Nearest,
    ProjectivePlane,
    Triangles,
    Triples,
    Window,
    WindowSquared,
)
from erlangen.relations.catalogue import WRITTEN, kinds
from erlangen.relations.families import Family
from erlangen.relations.parse import parse

N = 4
triples = st.lists(st.tuples(*[st.integers(0, N - 1)] * 3), max_size=20)


def as_set(relation: Triples) -> set[tuple[int, ...]]:
    return {tuple(triple) for triple in relation.triples().tolist()}


@given(triples, triples)
def test_operations_are_those_of_sets(a, b):
    left, right = Triples(N, a), Triples(N, b)
    assert as_set(left) == set(a)
    assert as_set(left & right) == set(a) & set(b)
    assert as_set(left | right) == set(a) | set(b)
    assert as_set(left - right) == set(a) - set(b)
    assert (left == right) == (set(a) == set(b))
    assert (hash(left) == hash(right)) or left != right
    assert left.num_triples == len(set(a))


@given(triples)
def test_one_relation_has_one_form(given_triples):
    relation = Triples(N, given_triples)
    assert relation == Triples(N, given_triples[::-1] + given_triples)
    assert copy.deepcopy(relation) == pickle.loads(pickle.dumps(relation)) == relation
    assert [relation.row(i) for i in range(N)] == [
        sorted({(j, last) for q, j, last in given_triples if q == i}) for i in range(N)
    ]
    assert relation.empty_queries().tolist() == [i for i in range(N) if not relation.row(i)]
    everything = np.array(list(product(range(-1, N + 1), repeat=3)))
    assert relation.contains(*everything.T).tolist() == [
        tuple(t) in set(given_triples) for t in everything.tolist()
    ]
    if 3 * relation.num_triples <= 64:
        assert parse(repr(relation)) == relation == eval(repr(relation), vars(relations))


@given(triples, st.permutations(range(N)))
def test_permuting_moves_every_place(given_triples, pi):
    moved = Triples(N, given_triples).permute(pi)
    assert as_set(moved) == {tuple(pi[x] for x in triple) for triple in given_triples}
    assert moved.permute(np.argsort(pi)) == Triples(N, given_triples)


@given(triples)
def test_the_shadow_is_both_keys(given_triples):
    pairs = {(i, key) for i, j, last in given_triples for key in (j, last)}
    assert {tuple(edge) for edge in Triples(N, given_triples).shadow().on(N).edges().tolist()} == pairs


def test_frozen():
    relation = Triples(3, [(0, 1, 2)])
    with pytest.raises(AttributeError, match="frozen"):
        relation.n = 4  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="read-only"):
        relation.first[0] = 0


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize(("back", "ahead"), [(0, 0), (2, 0), (1, 3), (9, 9)])
def test_a_window_squared_is_both_keys_in_the_window(n, back, ahead):
    near = [[j for j in range(n) if -ahead <= i - j <= back] for i in range(n)]
    expected = {(i, j, last) for i in range(n) for j in near[i] for last in near[i]}
    assert as_set(WindowSquared(back, ahead).on(n)) == expected
    assert WindowSquared(back, ahead).shadow() == Window(back, ahead)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=25))
def test_triangles_by_definition(edges):
    pairs = set(edges)
    expected = {
        (i, j, last)
        for i, j, last in product(range(6), repeat=3)
        if len({i, j, last}) == 3 and {(i, j), (i, last), (j, last)} <= pairs
    }
    assert as_set(Triangles(Graph(edges)).on(6)) == expected


def test_triangles_of_large_graphs_are_found_in_pieces(monkeypatch):
    import erlangen.relations.triangles as module

    whole = Triangles(Full()).on(9)
    monkeypatch.setattr(module, "_CHUNK", 7)
    assert Triangles(Full()).on(9) == whole
    assert whole.num_triples == 9 * 8 * 7


@pytest.mark.parametrize("q", [2, 3, 5])
def test_planes_by_their_axioms(q):
    projective, affine = ProjectivePlane(q), AffinePlane(q)
    for plane, points, lines, size in (
        (projective, q * q + q + 1, q * q + q + 1, q + 1),
        (affine, q * q, q * q + q, q),
    ):
        listed = [set(line) for line in plane.lines()]
        assert (plane.num_points, len(listed), {len(line) for line in listed}) == (points, lines, {size})
        for a in range(points):
            for b in range(a):
                assert sum({a, b} <= line for line in listed) == 1, "two points lie on one line"
        assert plane.incidence().num_edges == lines * size
    meets = [len(set(a) & set(b)) for a in projective.lines() for b in projective.lines() if a != b]
    assert set(meets) == {1}, "two projective lines meet in one point"


def test_lines_are_collinear_triples_of_distinct_points():
    geometry = Geometry(5, [(0, 1, 2, 3), (3, 4), (4, 4, 4)])
    expected = {t for t in product(range(4), repeat=3) if len(set(t)) == 3}
    assert as_set(Lines(geometry).on()) == expected
    assert Fano() == Lines(ProjectivePlane(2))
    assert Fano() != Lines(ProjectivePlane(3))


TEXTS = [
    "Fano()",
    "WindowSquared(lookback=2)",
    "WindowSquared(1, lookahead=1) - WindowSquared(0)",
    "Lines(ProjectivePlane(3)) & Lines(er.ProjectivePlane(order=3))",
    "Triangles(Graph([(0, 1), (1, 2), (0, 2)], nodes=3)) | Triples(3, [(0, 0, 0)])",
    "Lines(Geometry(4, [[0, 1, 2], (1, 2, 3)]))",
    "(WindowSquared(2) | WindowSquared(1)) & (WindowSquared(2) - WindowSquared(1))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_read_and_printed_back(text):
    relation = parse(text)
    assert parse(repr(relation)) == relation
    assert isinstance(relation, relations.TernaryRelation)
    size = relation.size or 5
    assert relation.on(size) == parse(repr(relation)).on(size)  # pyright: ignore[reportAttributeAccessIssue]


def test_every_public_ternary_name_can_be_written():
    from inspect import isabstract, isclass

    from erlangen.relations.geometries import FiniteGeometry

    bases = (relations.TernaryRelation, FiniteGeometry)
    public = {
        name
        for name in relations.__all__
        if isclass(thing := getattr(relations, name)) and issubclass(thing, bases) and not isabstract(thing)
    }
    assert public | {"Fano"} == set(WRITTEN) - set(
        kinds(relations.Relation, Family, relations.WeightedRelation)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ProjectivePlane(2)", "its ternary relation is Lines"),
        ("Fano().T", "ternary relations have & | -"),
        ("Fano().closure()", "ternary relations have & | -"),
        ("Fano() & Causal()", "does not combine"),
        ("Causal() | Fano()", "does not combine"),
        ("~Fano()", "is no relation"),
        ("Fano() @ Fano()", "does not combine"),
        ("Fano(2)", "Fano()"),
        ("Triples(3, [(0, 1)])", "shape"),
        ("Triples(3, 'abc')", "integers|list"),
    ],
)
def test_wrong_text_is_refused(text, message):
    with pytest.raises(ErlangenError, match=message.replace("(", r"\(").replace(")", r"\)")):
        parse(text)


def test_sizes_are_checked():
    with pytest.raises(SizeError, match="outside 3 positions"):
        Triples(3, [(0, 1, 3)])
    with pytest.raises(SizeError, match="outside 3 positions"):
        Triples(3, [(0, -1, 0)])
    with pytest.raises(SizeError, match="7 positions"):
        Fano() & Triples(3, [])
    with pytest.raises(SizeError, match="3 positions"):
        Triples(3, []) | Triples(4, [])
    with pytest.raises(SizeError, match="7 positions"):
        (WindowSquared(1) & Fano()).on(8)
    with pytest.raises(SizeError, match="triples"):
        WindowSquared(1000, 1000).on(1_000_000)
    with pytest.raises(SizeError, match="queries as keys"):
        Triangles(FromMask(np.ones((2, 3), bool)))
    with pytest.raises(SizeError, match="was bound to 4"):
        Triples(3, []).shadow(4)


def test_parameters_are_checked():
    for wrong in (lambda: WindowSquared(-1), lambda: ProjectivePlane(1), lambda: AffinePlane(9)):
        with pytest.raises(ParameterError):
            wrong()
    with pytest.raises(ParameterError, match="2000"):
        ProjectivePlane(10007)
    with pytest.raises(ParameterError, match="sizes alone"):
        Triangles(Nearest(2))
    with pytest.raises(ParameterError, match="beyond"):
        Geometry(3, [(0, 3)])
    with pytest.raises(ParameterError, match="permutation"):
        Triples(3, []).permute([0, 0, 1])
    with pytest.raises(ParameterError, match="Lines"):
        Lines(Causal())
    with pytest.raises(TypeError):
        Fano() & Causal()  # pyright: ignore[reportOperatorIssue]
    with pytest.raises(ExpressionError):
        parse("Lines")
