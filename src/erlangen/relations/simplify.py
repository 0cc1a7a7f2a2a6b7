"""Rules by pair of types: which two relations have a simpler intersection, union or composition.

Each rule for meets and joins is an identity of the predicates on (i, j), so it holds at every size; those for
compositions and closures hold wherever a composition can be bound (queries sit at positions of keys).
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm
from typing import Any

from erlangen.relations.key_sets import Padding
from erlangen.relations.orders import Causal, Empty, Full, Identity, Prefix
from erlangen.relations.partitions import Blocks
from erlangen.relations.relation import PREORDER, Relation
from erlangen.relations.windows import Dilated, Offset, Ring, Window

Rule = Callable[[Any, Any], Relation | None]

_MEET: dict[tuple[type, type], Rule] = {
    (Causal, Window): lambda a, b: Window(b.lookback),
    (Causal, Prefix): lambda a, b: a,
    (Window, Prefix): lambda a, b: a if a.lookahead == 0 else None,
    (Window, Window): lambda a, b: Window(min(a.lookback, b.lookback), min(a.lookahead, b.lookahead)),
    (Prefix, Prefix): lambda a, b: Prefix(min(a.length, b.length)),
    (Dilated, Dilated): lambda a, b: Dilated(lcm(a.step, b.step)),
    (Blocks, Blocks): lambda a, b: _nested(a, b, min),
    (Padding, Padding): lambda a, b: Padding(min(a.length, b.length), a.side) if a.side == b.side else None,
    (Offset, Offset): lambda a, b: Empty(),
    (Identity, Offset): lambda a, b: a if b.by == 0 else Empty(),
    (Causal, Offset): lambda a, b: b if b.by <= 0 else Empty(),
    (Window, Offset): lambda a, b: b if -a.lookback <= b.by <= a.lookahead else Empty(),
    **{(Identity, kind): lambda a, b: a for kind in (Causal, Window, Prefix, Dilated, Blocks, Ring)},
}

_JOIN: dict[tuple[type, type], Rule] = {
    (Causal, Window): lambda a, b: a if b.lookahead == 0 else None,
    (Causal, Prefix): lambda a, b: b,
    (Window, Prefix): lambda a, b: b if a.lookahead == 0 else None,
    (Window, Window): lambda a, b: Window(max(a.lookback, b.lookback), max(a.lookahead, b.lookahead)),
    (Prefix, Prefix): lambda a, b: Prefix(max(a.length, b.length)),
    (Dilated, Dilated): lambda a, b: Dilated(min(a.step, b.step)) if _divides(a.step, b.step) else None,
    (Blocks, Blocks): lambda a, b: _nested(a, b, max),
    (Padding, Padding): lambda a, b: Padding(max(a.length, b.length), a.side) if a.side == b.side else None,
    (Identity, Offset): lambda a, b: a if b.by == 0 else None,
    (Causal, Offset): lambda a, b: a if b.by <= 0 else None,
    (Window, Offset): lambda a, b: a if -a.lookback <= b.by <= a.lookahead else None,
    **{(Identity, kind): lambda a, b: b for kind in (Causal, Window, Prefix, Dilated, Blocks, Ring)},
}


def meet(a: Relation, b: Relation) -> Relation | None:
    """One relation equal to a & b at every size, or None when no rule says so.

    >>> meet(Causal(), Window(lookback=3, lookahead=2))
    Window(lookback=3)
    """
    return _apply(_MEET, a, b)


def join(a: Relation, b: Relation) -> Relation | None:
    """One relation equal to a | b at every size, or None when no rule says so.

    >>> join(Causal(), Prefix(4))
    Prefix(length=4)
    """
    return _apply(_JOIN, a, b)


def compose(a: Relation, b: Relation) -> Relation | None:
    """One relation equal to a @ b wherever it can be bound, or None when no rule says so.

    >>> compose(Window(lookback=1), Window(lookback=2, lookahead=1))
    Window(lookback=3, lookahead=1)
    """
    if isinstance(a, Identity) or isinstance(b, Empty):
        return b
    if isinstance(b, Identity) or isinstance(a, Empty):
        return a
    if isinstance(a, Window) and isinstance(b, Window):
        # From i to j the middle can always be chosen between i and j, so the ends cut nothing off.
        return Window(a.lookback + b.lookback, a.lookahead + b.lookahead)
    if isinstance(a, Offset) and isinstance(b, Offset) and a.by * b.by >= 0:
        # Of equal sign the middle lies between i and j; of opposite signs it may lie outside the sequence.
        return Offset(a.by + b.by)
    return a if a == b and a.laws >= PREORDER else None


def close(a: Relation) -> Relation | None:
    """One relation equal to the transitive closure of a, or None when no rule says so.

    >>> close(Window(lookback=2))
    Causal()
    """
    if isinstance(a, Window):
        back, ahead = a.lookback > 0, a.lookahead > 0
        if back != ahead:
            return Causal() if back else Causal().T
        return Full() if back else Identity()
    return a if "transitive" in a.laws else None


def _apply(rules: dict[tuple[type, type], Rule], a: Relation, b: Relation) -> Relation | None:
    if a == b:
        return a
    for first, second in ((a, b), (b, a)):
        rule = rules.get((type(first), type(second)))
        if rule is not None:
            return rule(first, second)
    return None


def _divides(a: int, b: int) -> bool:
    return max(a, b) % min(a, b) == 0


def _nested(a: Blocks, b: Blocks, choose: Callable[[int, int], int]) -> Blocks | None:
    return Blocks(choose(a.size, b.size)) if _divides(a.size, b.size) else None
