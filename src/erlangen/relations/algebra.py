"""The operators of the algebra. The functions simplify; the classes are the nodes that remain."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import reduce
from typing import Any, ClassVar, final

from erlangen.errors import SizeError
from erlangen.relations import bitrows, simplify, sizes
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Empty, Full, Identity
from erlangen.relations.relation import OPERATIONS, PREORDER, Relation, Site, need_joint, need_keys
from erlangen.relations.windows import Window

Rule = Callable[[Relation, Relation], Relation | None]

_SCATTERED = 16
"""Runs a row, on average, from which on a closure is found on bits."""

# How tightly each operator binds in Python, loosest first; `repr` sets parentheses by it.
_UNION, _INTERSECTION, _COMPOSITION, _COMPLEMENT, _POWER, _ATOM = range(6)


def _level(relation: Relation) -> int:
    return relation._level if isinstance(relation, Expression) else _ATOM


def _show(relation: Relation, level: int) -> str:
    return repr(relation) if _level(relation) >= level else f"({relation!r})"


class Expression(Relation):
    """A relation made from others. Equality and hash are those of `_key`."""

    _level: int = _ATOM

    @property
    @abstractmethod
    def operands(self) -> tuple[Relation, ...]:
        """The relations this one is made from."""

    @property
    def _key(self) -> Any:
        return self.operands

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Expression) and self._key == other._key

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __reduce__(self) -> Any:
        """Copies and pickles are built anew: a frozen object cannot be filled in afterwards."""
        return type(self), tuple(getattr(self, name) for name in type(self).__slots__)

    def _require(self, site: Site) -> None:
        for operand in self.operands:
            operand._require(site)

    @property
    def data_dependent(self) -> bool:
        return any(operand.data_dependent for operand in self.operands)

    @property
    def own_sizes(self) -> tuple[int, int] | None:
        found = [own for operand in self.operands if (own := operand.own_sizes) is not None]
        for own in found[1:]:
            if own[1] != found[0][1]:
                (q, k), (other_q, other_k) = found[0], own
                raise SizeError(
                    f"{self} has parts of different sizes: "
                    f"{q} queries x {k} keys and {other_q} queries x {other_k} keys"
                )
        return min(found) if found else None

    @property
    def arithmetic(self) -> bool:
        return self._keeps_arithmetic and all(operand.arithmetic for operand in self.operands)

    _keeps_arithmetic: ClassVar[bool] = True

    @property
    def pointwise(self) -> bool:
        return self._keeps_pointwise and all(operand.pointwise for operand in self.operands)

    _keeps_pointwise: ClassVar[bool] = True

    @property
    def laws(self) -> frozenset[str]:
        return self._kept(*(operand.laws for operand in self.operands))

    @abstractmethod
    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        """Which laws the operator keeps, from the laws of its operands."""

    def runs_needed(self, queries: int, keys: int) -> int:
        return max(operand.runs_needed(queries, keys) for operand in self.operands)


class _Nary(Expression):
    """Intersection and union: the order in which operands were written is kept, but does not count."""

    _symbol: str
    __slots__ = ("_operands",)

    def __init__(self, operands: tuple[Relation, ...]) -> None:
        object.__setattr__(self, "_operands", operands)

    @property
    def operands(self) -> tuple[Relation, ...]:
        return self._operands

    @property
    def _key(self) -> Any:
        return frozenset(self.operands)

    def __repr__(self) -> str:
        return f" {self._symbol} ".join(_show(operand, self._level + 1) for operand in self.operands)


@final
class Intersection(_Nary):
    """a & b: pairs in every operand."""

    _level, _symbol = _INTERSECTION, "&"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        every, some = first.intersection(*rest), first.union(*rest)
        # Not "total": j <= i and i <= j are total, and meet in the identity.
        return every & {"reflexive", "symmetric", "transitive", "toeplitz"} | some & {"antisymmetric"}

    def _transposed(self) -> Relation:
        return intersection(*(operand.T for operand in self.operands))

    def _bind(self, site: Site) -> Neighborhoods:
        return reduce(lambda a, b: a & b, (operand._bind(site) for operand in self.operands))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return reduce(lambda a, b: a & b, (operand._holds(i, j, keys) for operand in self.operands))


@final
class Union(_Nary):
    """a | b: pairs in some operand."""

    _level, _symbol = _UNION, "|"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first.intersection(*rest) & {"symmetric", "toeplitz"} | first.union(*rest) & {
            "reflexive",
            "total",
        }

    def _transposed(self) -> Relation:
        return union(*(operand.T for operand in self.operands))

    def _bind(self, site: Site) -> Neighborhoods:
        return reduce(lambda a, b: a | b, (operand._bind(site) for operand in self.operands))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return reduce(lambda a, b: a | b, (operand._holds(i, j, keys) for operand in self.operands))


class _Unary(Expression):
    __slots__ = ("_inner",)

    def __init__(self, inner: Relation) -> None:
        object.__setattr__(self, "_inner", inner)

    @property
    def operands(self) -> tuple[Relation, ...]:
        return (self._inner,)


@final
class Complement(_Unary):
    """~a: pairs not in a."""

    _level = _COMPLEMENT

    def __repr__(self) -> str:
        return f"~{_show(self._inner, _COMPLEMENT)}"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"symmetric", "toeplitz"}

    def _transposed(self) -> Relation:
        return complement(self._inner.T)

    def _bind(self, site: Site) -> Neighborhoods:
        return ~self._inner._bind(site)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return ~self._inner._holds(i, j, keys)


class _Joint(Expression):
    """Operators that walk through the sequence: queries must sit at positions of keys."""

    def _require(self, site: Site) -> None:
        need_joint(self, site)
        for operand in self.operands:
            operand._require(site.everywhere())

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self.on(need_keys(self, keys))._contains(i, j)


@final
class Transpose(_Joint, _Unary):
    """a.T: (i, j) such that (j, i) is in a."""

    def __repr__(self) -> str:
        return f"{_show(self._inner, _ATOM)}.T"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first

    @property
    def band(self) -> tuple[float, float] | None:
        band = self._inner.band
        return None if band is None else (band[1], band[0])

    def _transposed(self) -> Relation:
        return self._inner

    def _bind(self, site: Site) -> Neighborhoods:
        return self._inner._bind(site.everywhere()).T.restrict(site.positions)

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return self._inner._holds(j, i, keys)


@final
class Composition(_Joint):
    """a @ b @ ...: which keys are reached by one step of each, in this order."""

    _level = _COMPOSITION
    _keeps_arithmetic = _keeps_pointwise = False
    __slots__ = ("_steps",)

    def __init__(self, steps: tuple[Relation, ...]) -> None:
        object.__setattr__(self, "_steps", steps)

    @property
    def operands(self) -> tuple[Relation, ...]:
        return self._steps

    def __repr__(self) -> str:
        return " @ ".join(_show(step, _COMPOSITION + 1) for step in self._steps)

    def _require(self, site: Site) -> None:
        need_joint(self, site)
        self._steps[0]._require(site)
        for step in self._steps[1:]:
            step._require(site.everywhere())

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first.intersection(*rest) & {"reflexive"}

    def _transposed(self) -> Relation:
        return reduce(composition, (step.T for step in reversed(self._steps)))

    def _bind(self, site: Site) -> Neighborhoods:
        first, *rest = self._steps
        return reduce(lambda a, step: a.compose(step._bind(site.everywhere())), rest, first._bind(site))


@final
class Power(_Joint):
    """a ** p: exactly p steps of a."""

    _level = _POWER
    _keeps_arithmetic = _keeps_pointwise = False
    __slots__ = ("_base", "_exponent")

    def __init__(self, base: Relation, exponent: int) -> None:
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_exponent", exponent)

    @property
    def operands(self) -> tuple[Relation, ...]:
        return (self._base,)

    @property
    def _key(self) -> Any:
        return self._base, self._exponent

    def __repr__(self) -> str:
        return f"{_show(self._base, _ATOM)} ** {self._exponent}"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"reflexive", "symmetric"}

    def _transposed(self) -> Relation:
        return power(self._base.T, self._exponent)

    def _bind(self, site: Site) -> Neighborhoods:
        square, exponent = self._base._bind(site.everywhere()), self._exponent
        result = Identity()._bind(site)
        while exponent:
            if exponent & 1:
                result = result.compose(square)
            exponent >>= 1
            if exponent:
                square = square.compose(square)
        return result


@final
class Closure(_Joint, _Unary):
    """a.closure(): one or more steps of a."""

    _keeps_arithmetic = _keeps_pointwise = False

    def __repr__(self) -> str:
        return f"{_show(self._inner, _ATOM)}.closure()"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"reflexive", "symmetric", "total"} | {"transitive"}

    def _transposed(self) -> Relation:
        return closure(self._inner.T)

    def _bind(self, site: Site) -> Neighborhoods:
        reached = self._inner._bind(site.everywhere())
        while not (bitrows.fits(site.keys, site.keys) and reached.starts.size > _SCATTERED * site.keys):
            further = reached | reached.compose(reached)
            if further == reached:
                return reached.restrict(site.positions)
            reached = further
        return bitrows.close(reached).restrict(site.positions)


# ------------------------------------------------------------- simplifying constructors


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
    node: type[_Nary],
    dual: type[_Nary],
    *,
    unit: Relation,
    zero: Relation,
    rule: Rule,
) -> Relation:
    waiting = [
        part for r in reversed(relations) for part in reversed(r.operands if type(r) is node else (r,))
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
    kept = [p for p in kept if not (type(p) is dual and any(o in kept for o in p.operands))]
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
    return Full() if isinstance(relation, Empty) else Complement(relation)


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
        return Power(base._base, base._exponent * exponent)
    return Power(base, exponent)


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
    return Closure(relation) if simple is None else simple


@operation
def transpose(relation: Relation) -> Relation:
    """a.T of a relation that knows no simpler one."""
    return Transpose(relation)


@operation
def reach(relation: Relation, layers: int) -> Relation:
    """a.reach(layers): `layers` steps, each of which may stay where it is."""
    return power(union(relation, Identity()), layers)
