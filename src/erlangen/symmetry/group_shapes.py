"""Abstract groups by name: symmetric, cyclic and dihedral groups, their products and wreath products."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from erlangen.errors import ParameterError

PRINTED_DIGITS = 30
"""Orders up to this many digits print as integers, larger ones as an expression such as 1000000!."""


@dataclass(frozen=True)
class Shape:
    """A group up to isomorphism. `order` is computed only when asked for: 1000000! has 5.5 million digits.

    >>> Wreath(Symmetric(2), Symmetric(3)).order
    48
    """

    @cached_property
    def order(self) -> int:
        """The exact number of elements."""
        raise NotImplementedError

    @cached_property
    def digits(self) -> float:
        """log10 of the order, without computing an order that is long."""
        return math.log10(self.order)

    @property
    def name(self) -> str:
        """The group as a person would write it."""
        raise NotImplementedError

    @property
    def formula(self) -> str:
        """The order as an expression."""
        return str(self.order)

    @property
    def order_text(self) -> str:
        """The order as an integer where that is short, otherwise as an expression."""
        return str(self.order) if self.digits < PRINTED_DIGITS else self.formula

    @property
    def _factor(self) -> str:
        """The name inside a larger name."""
        return self.name


@dataclass(frozen=True)
class Symmetric(Shape):
    """S_k: all k! permutations of k things. S_0 and S_1 are trivial.

    >>> Symmetric(5).name, Symmetric(5).order, Symmetric(1).name
    ('S5', 120, '1')
    """

    k: int

    @cached_property
    def order(self) -> int:
        return math.factorial(self.k)

    @cached_property
    def digits(self) -> float:
        return math.lgamma(self.k + 1) / math.log(10)

    @property
    def name(self) -> str:
        return f"S{self.k}" if self.k > 1 else "1"

    @property
    def formula(self) -> str:
        return f"{self.k}!"


@dataclass(frozen=True)
class Cyclic(Shape):
    """C_k: the k rotations of a k-gon. C_2 is written Z2.

    >>> Cyclic(8).name, Cyclic(2).name
    ('C8', 'Z2')
    """

    k: int

    @cached_property
    def order(self) -> int:
        return self.k

    @property
    def name(self) -> str:
        return {1: "1", 2: "Z2"}.get(self.k, f"C{self.k}")


@dataclass(frozen=True)
class Dihedral(Shape):
    """D_k, k >= 3: the 2k rotations and reflections of a k-gon (some books write D_2k for it).

    >>> Dihedral(8).name, Dihedral(8).order
    ('D8', 16)
    """

    k: int

    @cached_property
    def order(self) -> int:
        return 2 * self.k

    @property
    def name(self) -> str:
        return f"D{self.k}"


@dataclass(frozen=True)
class Product(Shape):
    """A direct product; the empty one is the trivial group 1. Build it with `product`."""

    factors: tuple[Shape, ...]

    @cached_property
    def order(self) -> int:
        return math.prod(factor.order for factor in self.factors)

    @cached_property
    def digits(self) -> float:
        return math.fsum(factor.digits for factor in self.factors)

    @property
    def name(self) -> str:
        counted = Counter(factor._factor for factor in self.factors)
        parts = [
            " x ".join([text] * times) if times <= 2 else f"{text}^{times}" for text, times in counted.items()
        ]
        return " x ".join(parts) or "1"

    @property
    def formula(self) -> str:
        counted = Counter(factor.formula for factor in self.factors)
        return (
            " * ".join(text if times == 1 else f"({text})^{times}" for text, times in counted.items()) or "1"
        )

    @property
    def _factor(self) -> str:
        return f"({self.name})" if len(self.factors) > 1 else self.name


@dataclass(frozen=True)
class Wreath(Shape):
    """base wr top: k copies of base, permuted among themselves by top acting on k things. Build it with
    `wreath`.

    >>> wreath(Symmetric(2), Symmetric(3)).name
    'S2 wr S3'
    """

    base: Shape
    top: Symmetric | Cyclic | Dihedral

    @cached_property
    def order(self) -> int:
        return self.base.order**self.top.k * self.top.order

    @cached_property
    def digits(self) -> float:
        return self.top.k * self.base.digits + self.top.digits

    @property
    def name(self) -> str:
        return f"{self.base._factor} wr {self.top.name}"

    @property
    def formula(self) -> str:
        return f"({self.base.formula})^{self.top.k} * {self.top.formula}"

    @property
    def _factor(self) -> str:
        return f"({self.name})"


@dataclass(frozen=True)
class Unnamed(Shape):
    """A group of which only the order, or a lower bound of it, is known: a number times the order of a part.

    >>> Unnamed(168).name, Unnamed(12, at_least=True).name
    ('order 168', 'order at least 12')
    """

    times: int
    part: Shape = Product(())
    at_least: bool = False

    @cached_property
    def order(self) -> int:
        return self.times * self.part.order

    @cached_property
    def digits(self) -> float:
        return math.log10(self.times) + self.part.digits

    @property
    def name(self) -> str:
        return f"order at least {self.order_text}" if self.at_least else f"order {self.order_text}"

    @property
    def formula(self) -> str:
        if isinstance(self.part, Product) and not self.part.factors:
            return str(self.times)
        return self.part.formula if self.times == 1 else f"{self.times} * {self.part.formula}"


TRIVIAL = Product(())
"""The group with one element."""


def product(*factors: Shape) -> Shape:
    """The direct product, flattened and without trivial factors.

    >>> product(Symmetric(3), Symmetric(1), Symmetric(4)).name
    'S3 x S4'
    >>> product(*[Symmetric(2)] * 5).name
    'S2^5'
    """
    flat: list[Shape] = []
    for factor in factors:
        flat.extend(factor.factors if isinstance(factor, Product) else (factor,))
    kept = tuple(factor for factor in flat if not (isinstance(factor, (Symmetric, Cyclic)) and factor.k <= 1))
    return kept[0] if len(kept) == 1 else Product(kept)


def wreath(base: Shape, top: Symmetric | Cyclic | Dihedral) -> Shape:
    """base wr top, simplified where one of the two is trivial.

    >>> wreath(TRIVIAL, Symmetric(3)).name, wreath(Symmetric(4), Symmetric(1)).name
    ('S3', 'S4')
    """
    if top.k < 1:
        raise ParameterError(f"a wreath product needs at least one copy, got {top}")
    if base == TRIVIAL or (isinstance(base, (Symmetric, Cyclic)) and base.k <= 1):
        return product(top)
    return base if top.k == 1 else Wreath(base, top)
