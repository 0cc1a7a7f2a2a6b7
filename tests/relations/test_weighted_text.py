"""Weighted relations as text: what is printed is read back, and nothing else is read."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erlangen.errors import ErlangenError, ExpressionError, ParameterError
from erlangen.relations import (
    ALiBi,
    Batch,
    Causal,
    Decay,
    Distance,
    Full,
    Graph,
    Padding,
    PerHead,
    RelativeBias,
    Weighted,
    WeightedRelation,
    Window,
)
from erlangen.relations.catalogue import kinds
from erlangen.relations.families import Family
from erlangen.relations.parse import parse
from erlangen.relations.relation import Relation
from erlangen.testing.strategies import examples

WEIGHTED = kinds(WeightedRelation)
numbers = st.one_of(st.integers(-9, 9), st.floats(-4, 4, width=32), st.fractions(-3, 3, max_denominator=7))
supports = st.sampled_from([Causal(), Full(), Window(2, 1), Causal() & Window(3) | Padding(2)])
heads = st.one_of(
    supports,
    st.just(PerHead([Causal(), Full()])),
    st.just(Batch([Padding(2), Padding(3)])),
)


def lists(size: int):
    return st.lists(numbers, min_size=size, max_size=size)


KINDS = {
    ALiBi: st.builds(ALiBi, st.one_of(numbers, st.lists(numbers, min_size=1, max_size=3)), heads),
    Decay: st.builds(Decay, st.lists(numbers.map(lambda x: abs(x) + 1), min_size=1, max_size=3), supports),
    RelativeBias: st.builds(
        RelativeBias,
        st.one_of(lists(6), st.lists(lists(4), min_size=1, max_size=2)),
        relation=supports,
        bidirectional=st.booleans(),
        max_distance=st.integers(7, 99),
    ),
    Distance: st.builds(
        Distance, st.just(Graph([(0, 1), (1, 0)], nodes=3)), st.lists(numbers, min_size=1, max_size=3)
    ),
    Weighted: st.one_of(
        st.builds(Weighted, supports, st.lists(lists(3), min_size=2, max_size=3)),
        st.builds(
            lambda r, v: Weighted(r, offsets=v), supports, st.dictionaries(st.integers(-4, 4), numbers)
        ),
        st.builds(
            lambda r, v: Weighted(r, offsets=v),
            supports,
            st.dictionaries(st.integers(-4, 4), st.tuples(numbers, numbers), min_size=1),
        ),
        st.builds(lambda v: Weighted(Graph([(0, 1), (1, 0)]), edges=v), lists(2)),
    ),
}


for _kind in WEIGHTED.values():  # one that has no strategy here is made as it says
    KINDS.setdefault(_kind, examples(_kind, 3))


def test_every_weighted_relation_is_known_and_tested():
    assert {kind.__name__ for kind in KINDS} == set(WEIGHTED)


@given(st.one_of(*KINDS.values()))
@settings(max_examples=120)
def test_what_is_printed_is_read_back(weighted):
    assert parse(repr(weighted)) == weighted


@pytest.mark.parametrize(
    ("text", "weighted"),
    [
        ("ALiBi(slopes=[0.5, 0.25])", ALiBi([0.5, 0.25])),
        ("er.ALiBi(1) & er.Window(3)", ALiBi(1, relation=Window(3))),
        ("Window(3) & ALiBi(-1e-1)", ALiBi(-0.1, relation=Window(3))),
        ("Decay(rate=0.9)", Decay(0.9)),
        ("ALiBi(Fraction(-1, 3))", ALiBi(Fraction(-1, 3))),
        ("Weighted(Causal(), offsets={0: 0, -1: -2.5})", Weighted(Causal(), offsets={0: 0, -1: -2.5})),
        ("Weighted(Causal(), [[0, 1.5], [2, 3]])", Weighted(Causal(), [[0, 1.5], [2, 3]])),
        ("Distance(Graph([(0, 1)], nodes=2), [0, -1])", Distance(Graph([(0, 1)], nodes=2), [0, -1])),
    ],
)
def test_the_grammar(text, weighted):
    assert parse(text) == weighted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALiBi(slopes=[0.5]).T", "apply it to the relation inside"),
        ("ALiBi(1).closure()", "apply it to the relation inside"),
        ("ALiBi(1).reach(2)", "apply it to the relation inside"),
        ("~ALiBi(1)", "is no relation"),
        ("ALiBi(1) | Causal()", "does not combine ALiBi and Causal"),
        ("ALiBi(1) @ ALiBi(1)", "does not combine"),
        ("Alibi(1)", "did you mean ALiBi"),
        ("ALiBi(Fraction(1, 0))", "denominator 0"),
        ("ALiBi(Fraction(1))", "no relation is called 'Fraction'"),
        ("ALiBi(Fraction(0.5, 2))", "must be an integer"),
        ("ALiBi(1/2)", "is not a relation|not one of relations"),
        ("ALiBi(1j)", "no argument"),
        ("Window(Fraction(1, 2))", "no relation is called 'Fraction'"),
        ("Weighted(Causal(), offsets={**{}})", "must be an integer"),
        ("Window({1: 2})", "is not a relation"),
        ("PerHead([Window(0.5)])", "0.5 is no argument"),
        ("ALiBi(relation=Window(0.5), slopes=1)", "0.5 is no argument"),
    ],
)
def test_everything_else_is_refused(text, message):
    with pytest.raises(ExpressionError, match=message):
        parse(text)


def test_their_own_errors():
    with pytest.raises(ParameterError, match="> 0"):
        parse("Decay(-0.5)")
    with pytest.raises(ParameterError, match="finite"):
        parse("ALiBi(1e999)")


literals = st.sampled_from(["1", "-2", "0.5", "-1e3", "Fraction(1, 2)", "{1: 2}", "True", "'x'", "Causal()",
                            "Graph([(0, 1)], nodes=2)", "ALiBi(1)"])  # fmt: skip
arguments = st.recursive(
    literals,
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]"),
    max_leaves=5,
)


@given(st.sampled_from(sorted(WEIGHTED)), st.lists(arguments, max_size=3))
@settings(max_examples=150)
def test_no_arguments_raise_anything_but_our_errors(name, given_arguments):
    try:
        weighted = parse(f"{name}({', '.join(given_arguments)})")
    except ErlangenError:
        return
    assert isinstance(weighted, (WeightedRelation, Relation, Family))
