"""Operators and comparisons between kinds of relations: a right answer, or an error in words."""

from __future__ import annotations

import itertools
import operator

import pytest

import erlangen as er
from erlangen.errors import ErlangenError, ParameterError
from erlangen.relations.protocol import AnyRelation

N = 4
KINDS = {
    "relation": er.Causal(),
    "expression": er.Causal() | er.Global([2]),
    "other relation": er.Window(1),
    "heads": er.PerHead([er.Causal(), er.Window(2)]),
    "batch": er.Batch([er.Causal(), er.Full()]),
    "batch of heads": er.Batch([er.PerHead([er.Causal(), er.Full()]), er.Window(1)]),
    "weighted": er.ALiBi(1),
    "other weighted": er.Decay(0.5),
    "ternary": er.WindowSquared(1),
    "triples": er.WindowSquared(1).on(N),
    "bound": er.Causal().on(N),
    "bound weighted": er.ALiBi(1).on(N),
    "number": 3,
    "text": "Causal()",
    "nothing": None,
}
OPERATORS = {
    "&": operator.and_, "|": operator.or_, "-": operator.sub, "^": operator.xor, "@": operator.matmul,
    "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@pytest.mark.parametrize("symbol", OPERATORS)
def test_no_two_kinds_meet_in_a_raw_error(symbol):
    for (left, a), (right, b) in itertools.product(KINDS.items(), repeat=2):
        both = isinstance(a, AnyRelation) and isinstance(b, AnyRelation) and type(a) is not type(b)
        assert not (both and raw_error(symbol, a, b)), f"{left} {symbol} {right}"


def raw_error(symbol, a, b):
    """Whether Python speaks of types; anything but TypeError and erlangen's own errors comes through."""
    try:
        OPERATORS[symbol](a, b)
    except (TypeError, ErlangenError) as error:
        return "unsupported operand" in str(error) or "not supported between" in str(error)
    return False


@pytest.mark.parametrize("kind", ["relation", "expression", "heads", "batch", "batch of heads", "weighted"])
@pytest.mark.parametrize("symbol", [*OPERATORS])
def test_bound_with_unbound_says_what_to_bind(symbol, kind):
    bound, free = KINDS["bound"], KINDS[kind]
    for a, b in ((bound, free), (free, bound)):
        with pytest.raises(TypeError, match=r"is bound to sizes and .* is not: write .*on\(4, 4\)"):
            OPERATORS[symbol](a, b)


def test_bound_and_unbound_are_different_values():
    """As equality of relations is of what is written, and equality of bound ones of what is read."""
    assert er.Causal() != er.Causal().on(N)
    assert er.Causal().on(N) != er.Causal()
    assert len({er.Causal(), er.Causal().on(N)}) == 2


def test_families_take_every_operator_member_by_member():
    a, b, c = er.Window(1), er.Dilated(2), er.Causal()
    heads = er.PerHead([a, b])
    assert heads @ heads == er.PerHead([a @ a, b @ b])
    assert heads @ c == er.PerHead([a @ c, b @ c])
    assert c @ heads == er.PerHead([c @ a, c @ b])
    assert heads**2 == heads @ heads
    assert heads.closure() == er.PerHead([a.closure(), b.closure()])
    batch = er.Batch([heads, c])
    assert batch @ c == er.Batch([heads @ c, c @ c])
    assert heads @ batch == er.Batch([heads @ heads, heads @ c])
    assert er.Batch([a, b]).reach(3) == er.Batch([a.reach(3), b.reach(3)])
    for family in (heads, batch):
        with pytest.raises(ParameterError, match="mix after every layer"):
            family.reach(2)


def test_inclusion_of_what_is_not_bound_is_refused():
    for other in (er.Full(), KINDS["expression"]):
        with pytest.raises(TypeError, match="decided at a size: write"):
            _ = er.Causal() <= other
    with pytest.raises(TypeError, match="compare its members"):
        _ = KINDS["heads"] >= er.Causal()
    with pytest.raises(TypeError, match="ternary"):
        _ = KINDS["triples"] <= KINDS["triples"]
