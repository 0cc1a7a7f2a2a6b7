"""The operators of the algebra: functions that simplify, and leave an expression where they cannot."""

from __future__ import annotations

from collections.abc import Callable

from erlangen.relations import simplify, sizes
from erlangen.relations.expressions import (
    Closure,
    Complement,
    Composition,
    Expression,
    Intersection,
    Power,
    Transpose,
    Union,
)
from erlangen.relations.orders import Empty, Full, Identity
from erlangen.relations.relation import OPERATIONS, PREORDER, Relation
from erlangen.relations.windows import Window

Rule = Callable[[Relation, Relation], Relation | None]


def operation(function: Callable[..., Relation]) -> Callable[..., Relation]:
    """A decorator: relations find the constructor by its name."""
    return OPERATIONS.setdefault(function.__name__, function)


@operation
def intersection(*relations: Relation) -> Relation:
    """a & b & ..., simplified.

    >>> from erlangen.relations import Causal, Window
    >>> Causal() & Causal(), Causal() & Full(), Causal() & ~Causal()
    (Causal(), Causal(), Empty())
    """
    return _lattice(relations, Intersection, Union, unit=Full(), zero=Empty(), rule=_meet)


@operation
def union(*relations: Relation) -> Relation:
    """a | b | ..., simplified.

    >>> from erlangen.relations import Causal, Window
    >>> Causal() | Window(lookback=3), Causal() | ~Causal()
    (Causal(), Full())
    """
    return _lattice(relations, Union, Intersection, unit=Empty(), zero=Full(), rule=_join)


def _meet(a: Relation, b: Relation) -> Relation | None:
    return _dualise(a, b, simplify.meet, simplify.join, Empty())


def _join(a: Relation, b: Relation) -> Relation | None:
    return _dualise(a, b, simplify.join, simplify.meet, Full())


def _dualise(a: Relation, b: Relation, rule: Rule, dual: Rule, zero: Relation) -> Relation | None:
    """De Morgan: ~a & ~b = ~(a | b), and a & ~c is empty when a lies inside c (dually for unions)."""
    if isinstance(a, Complement) and isinstance(b, Complement):
        inner = dual(a._inner, b._inner)
        return None if inner is None else complement(inner)
    if isinstance(a, Complement):
        a, b = b, a
    if isinstance(b, Complement):
        return zero if rule(a, b._inner) == a else None
    return rule(a, b)


def _lattice(
    relations: tuple[Relation, ...],
    node: type[Expression],
    dual: type[Expression],
    *,
    unit: Relation,
    zero: Relation,
    rule: Rule,
) -> Relation:
    waiting = [
        part for r in reversed(relations) for part in reversed(r.operands if isinstance(r, node) else (r,))
    ]
    kept: list[Relation] = []
    while waiting:
        part = waiting.pop()
        if part == zero:
            return zero
        if part == unit:
            continue
        for index, other in enumerate(kept):
            merged = rule(other, part)
            if merged is not None:
                del kept[index]
                waiting.append(merged)
                break
        else:
            kept.append(part)
    # Absorption: a & (a | b) = a.
    kept = [p for p in kept if not (isinstance(p, dual) and any(o in kept for o in p.operands))]
    return node(tuple(kept)) if len(kept) > 1 else kept[0] if kept else unit


@operation
def complement(relation: Relation) -> Relation:
    """~a, simplified.

    >>> from erlangen.relations import Causal
    >>> ~~Causal(), ~Full()
    (Causal(), Empty())
    """
    if isinstance(relation, Complement):
        return relation._inner
    if isinstance(relation, Full):
        return Empty()
    return Full() if isinstance(relation, Empty) else Complement((relation,))


@operation
def composition(first: Relation, second: Relation) -> Relation:
    """a @ b, simplified.

    >>> from erlangen.relations import Causal, Window
    >>> Window(lookback=2) @ Window(lookback=3), Causal() @ Causal()
    (Window(lookback=5), Causal())
    """
    steps = [step for r in (first, second) for step in (r.operands if isinstance(r, Composition) else (r,))]
    kept: list[Relation] = []
    for step in steps:
        kept.append(step)
        # What two steps merge into may merge with the step before.
        while len(kept) > 1 and (merged := simplify.compose(kept[-2], kept[-1])) is not None:
            kept[-2:] = [merged]
    return Composition(tuple(kept)) if len(kept) > 1 else kept[0]


@operation
def power(base: Relation, exponent: int) -> Relation:
    """a ** p, simplified; a ** 0 is the identity.

    >>> from erlangen.relations import Causal, Window
    >>> Window(lookback=2) ** 5, Causal() ** 7
    (Window(lookback=10), Causal())
    """
    exponent = sizes.count(exponent, "the exponent of **")
    if exponent == 0:
        return Identity()
    if exponent == 1 or base.laws >= PREORDER or isinstance(base, Empty):
        return base
    if isinstance(base, Window):
        return Window(base.lookback * exponent, base.lookahead * exponent)
    if isinstance(base, Power):
        return Power(base.operands, base.exponent * exponent)
    return Power((base,), exponent)


@operation
def closure(relation: Relation) -> Relation:
    """a.closure(), simplified.

    >>> from erlangen.relations import Window
    >>> Window(lookback=1).closure(), Window(lookback=1, lookahead=1).closure()
    (Causal(), Full())
    """
    if isinstance(relation, Closure):
        return relation
    simple = simplify.close(relation)
    return Closure((relation,)) if simple is None else simple


@operation
def transpose(relation: Relation) -> Relation:
    """a.T of a relation that knows no simpler one."""
    return Transpose((relation,))


@operation
def reach(relation: Relation, layers: int) -> Relation:
    """a.reach(layers): `layers` steps, each of which may stay where it is."""
    return power(union(relation, Identity()), layers)
