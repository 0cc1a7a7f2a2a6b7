"""Re-check a certificate from the definitions alone, without trusting whoever wrote it.

A certificate that does not say exactly what its claim needs is rejected, never repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from math import factorial, prod
from typing import Any

from erlangen.errors import DataError, ParameterError, SizeError
from erlangen.relations import Neighborhoods, Relation
from erlangen.taxonomy.certificates import Certificate
from erlangen.taxonomy.claims import check, readable

MAX_BOUND = 4_096
"""Relations are bound to sizes that a certificate names up to this many positions."""


def verify(
    certificate: Certificate | Mapping[str, Any], relation: Neighborhoods | Relation, n: int | None = None
) -> bool:
    """Whether the certificate proves its claim about this relation.

    `relation` is bound (`R.on(n)`), or a relation with `n`, which is bound here; the certificate must be
    about that n. A relation without `n` is bound to the size that the certificate names, up to `MAX_BOUND`:
    whoever wrote it has chosen that size, and True says no more than that the claim holds *there*. A
    certificate about every n >= `size` is checked at the size of the bound relation.

    >>> from erlangen.relations import Causal
    >>> verify(Certificate("transitive", True, {"order": "ascending"}, size=4), Causal().on(4))
    True
    >>> verify(Certificate("symmetric", False, {"present": [0, 1]}, size=4), Causal().on(4))
    False
    """
    if not isinstance(certificate, Certificate):
        try:
            certificate = Certificate.from_dict(certificate)
        except DataError:
            return False
    if not readable(certificate):
        return False
    bound = _bound(relation, n, certificate.size)
    return bound is not None and check(certificate, bound)


@singledispatch
def _bound(relation: Any, n: int | None, size: int) -> Neighborhoods | None:
    """The relation at n, or at the size a certificate names; None where it does not exist at that size."""
    raise ParameterError(f"verify takes a relation or R.on(n), got {relation!r}")


@_bound.register
def _given(relation: Neighborhoods, n: int | None, size: int) -> Neighborhoods | None:
    return relation if n is None or n == relation.queries else None


@_bound.register
def _made(relation: Relation, n: int | None, size: int) -> Neighborhoods | None:
    if n is not None:
        return relation.on(n)
    if size > MAX_BOUND:
        raise DataError(
            f"the certificate names a size beyond the {MAX_BOUND:,} positions to which a relation is bound "
            "because a certificate says so: bind it yourself, verify(certificate, relation.on(n))"
        )
    try:
        return relation.on(size)
    except SizeError:
        return None


def order_of(data: Mapping[str, Any]) -> int:
    """The group order that a `symmetry` certificate states.

    >>> order_of({"order": {"factorials": [3, 2]}}), order_of({"order": "8"})
    (12, 8)
    """
    stated = data["order"]
    return int(stated) if isinstance(stated, str) else prod(map(factorial, stated["factorials"]))
