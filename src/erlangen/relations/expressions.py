"""Relations made from others: the nodes that remain of an expression once it is simplified."""

from __future__ import annotations

import operator
from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, final

from erlangen.errors import SizeError
from erlangen.relations import bitrows
from erlangen.relations.neighborhoods import Neighborhoods
from erlangen.relations.orders import Identity
from erlangen.relations.relation import Relation, Site, need_joint, need_keys

_SCATTERED = 16
"""Runs a row, on average, from which on a closure is found on bits."""

# How tightly each operator binds in Python, loosest first; `repr` sets parentheses by it.
_UNION, _INTERSECTION, _COMPOSITION, _COMPLEMENT, _POWER, _ATOM = range(6)


def _level(relation: Relation) -> int:
    return relation._level if isinstance(relation, Expression) else _ATOM


def _show(relation: Relation, level: int) -> str:
    return repr(relation) if _level(relation) >= level else f"({relation!r})"


@dataclass(frozen=True, repr=False)
class Expression(Relation):
    """A relation made from others, its operands."""

    operands: tuple[Relation, ...]
    _level: ClassVar[int] = _ATOM

    @property
    def _inner(self) -> Relation:
        """The operand of an operator that has one."""
        return self.operands[0]

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

    _symbol: ClassVar[str]
    _combine: ClassVar[Any]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and set(self.operands) == set(getattr(other, "operands", ()))

    def __hash__(self) -> int:
        return hash((type(self).__name__, frozenset(self.operands)))

    def __repr__(self) -> str:
        return f" {self._symbol} ".join(_show(operand, self._level + 1) for operand in self.operands)

    def _transposed(self) -> Relation:
        return reduce(self._combine, (operand.T for operand in self.operands))

    def _bind(self, site: Site) -> Neighborhoods:
        return reduce(self._combine, (operand._bind(site) for operand in self.operands))

    def _holds(self, i: Any, j: Any, keys: int | None) -> Any:
        return reduce(self._combine, (operand._holds(i, j, keys) for operand in self.operands))


@final
@dataclass(frozen=True, repr=False, eq=False)
class Intersection(_Nary):
    """a & b: pairs in every operand."""

    _level, _symbol, _combine = _INTERSECTION, "&", staticmethod(operator.and_)

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        every, some = first.intersection(*rest), first.union(*rest)
        # Not "total": j <= i and i <= j are total, and meet in the identity.
        return every & {"reflexive", "symmetric", "transitive", "toeplitz"} | some & {"antisymmetric"}


@final
@dataclass(frozen=True, repr=False, eq=False)
class Union(_Nary):
    """a | b: pairs in some operand."""

    _level, _symbol, _combine = _UNION, "|", staticmethod(operator.or_)

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first.intersection(*rest) & {"symmetric", "toeplitz"} | first.union(*rest) & {
            "reflexive",
            "total",
        }


@final
@dataclass(frozen=True, repr=False)
class Complement(Expression):
    """~a: pairs not in a."""

    _level = _COMPLEMENT

    def __repr__(self) -> str:
        return f"~{_show(self._inner, _COMPLEMENT)}"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"symmetric", "toeplitz"}

    def _transposed(self) -> Relation:
        return ~self._inner.T

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
@dataclass(frozen=True, repr=False)
class Transpose(_Joint):
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
@dataclass(frozen=True, repr=False)
class Composition(_Joint):
    """a @ b @ ...: which keys are reached by one step of each, in this order."""

    _level = _COMPOSITION
    _keeps_arithmetic = _keeps_pointwise = False

    def __repr__(self) -> str:
        return " @ ".join(_show(step, _COMPOSITION + 1) for step in self.operands)

    def _require(self, site: Site) -> None:
        need_joint(self, site)
        self.operands[0]._require(site)
        for step in self.operands[1:]:
            step._require(site.everywhere())

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first.intersection(*rest) & {"reflexive"}

    def _transposed(self) -> Relation:
        return reduce(operator.matmul, (step.T for step in reversed(self.operands)))

    def _bind(self, site: Site) -> Neighborhoods:
        first, *rest = self.operands
        return reduce(lambda a, step: a.compose(step._bind(site.everywhere())), rest, first._bind(site))


@final
@dataclass(frozen=True, repr=False)
class Power(_Joint):
    """a ** p: exactly p steps of a."""

    exponent: int
    _level = _POWER
    _keeps_arithmetic = _keeps_pointwise = False

    def __repr__(self) -> str:
        return f"{_show(self._inner, _ATOM)} ** {self.exponent}"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"reflexive", "symmetric"}

    def _transposed(self) -> Relation:
        return self._inner.T**self.exponent

    def _bind(self, site: Site) -> Neighborhoods:
        square, exponent = self._inner._bind(site.everywhere()), self.exponent
        result = Identity()._bind(site)
        while exponent:
            if exponent & 1:
                result = result.compose(square)
            exponent >>= 1
            if exponent:
                square = square.compose(square)
        return result


@final
@dataclass(frozen=True, repr=False)
class Closure(_Joint):
    """a.closure(): one or more steps of a."""

    _keeps_arithmetic = _keeps_pointwise = False

    def __repr__(self) -> str:
        return f"{_show(self._inner, _ATOM)}.closure()"

    def _kept(self, first: frozenset[str], *rest: frozenset[str]) -> frozenset[str]:
        return first & {"reflexive", "symmetric", "total"} | {"transitive"}

    def _transposed(self) -> Relation:
        return self._inner.T.closure()

    def _bind(self, site: Site) -> Neighborhoods:
        reached = self._inner._bind(site.everywhere())
        while not (bitrows.fits(site.keys, site.keys) and reached.starts.size > _SCATTERED * site.keys):
            further = reached | reached.compose(reached)
            if further == reached:
                return reached.restrict(site.positions)
            reached = further
        return bitrows.close(reached).restrict(site.positions)
