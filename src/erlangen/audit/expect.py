"""What a user expects of a model, and the edge that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from erlangen.audit.findings import Finding
from erlangen.audit.observed import Measured
from erlangen.audit.support import of_item
from erlangen.audit.wording import wanted, without_masks
from erlangen.errors import ErlangenError, ParameterError
from erlangen.relations import Batch, Neighborhoods, PerHead, Relation
from erlangen.relations.protocol import AnyRelation

if TYPE_CHECKING:
    from typing_extensions import TypeIs


@dataclass(frozen=True)
class AtMost:
    """An upper bound: what is read must lie within the relation; edges may be missing.

    >>> from erlangen.relations import Causal
    >>> print(AtMost(Causal()))
    at most Causal()
    """

    relation: Relation | PerHead | Batch

    def __post_init__(self) -> None:
        if isinstance(self.relation, AtMost) or not is_expected(self.relation):
            raise ParameterError(f"AtMost takes a relation, such as Causal(); got {self.relation!r}")

    def __str__(self) -> str:
        return f"at most {self.relation}"


class RaisingExpectation(ParameterError):
    """A callable that says what is expected raised an error of its own."""


Expected = Relation | PerHead | Batch | AtMost
Expectation = Expected | Mapping[str, Expected] | Callable[[Measured], Expected | None] | None


def is_expected(value: Any) -> TypeIs[Expected]:
    """Whether a value is a relation of pairs without weights, one or several, or an upper bound of such."""
    one = value.relation if isinstance(value, AtMost) else value
    return isinstance(one, AnyRelation) and one.arity == 2 and one.weights is None and not one.is_bound


def bound_of(expected: Expected) -> Relation | PerHead | Batch:
    """The relation of an expectation, whether it must be read exactly or at most."""
    return expected.relation if isinstance(expected, AtMost) else expected


def in_words(expected: Expected, queries: int, keys: int) -> str:
    """An expectation as a reader sees it: a mask that was given is said by what it reads."""
    text = wanted(bound_of(expected), queries, keys)
    return f"at most {text}" if isinstance(expected, AtMost) else text


def overall(expect: Expectation) -> Expected | None:
    """The one relation expected of the whole model: the relation itself, or that of the pattern `*`."""
    if isinstance(expect, Mapping):
        return expect.get("*")
    return expect if is_expected(expect) else None


def about_the_whole(expect: Expectation, calls: list[Measured]) -> bool:
    """Whether the pattern `*` is left for the whole model, as every call has a pattern before it."""
    if not isinstance(expect, Mapping) or "*" not in expect:
        return False
    firsts = (next(p for p in expect if fnmatchcase(call.module, p)) for call in calls)
    return all(pattern != "*" for pattern in firsts)


def has_own_size(expect: Expectation) -> bool:
    """Whether an expectation speaks of one size only, so of this content and no other.

    >>> from erlangen.relations import Causal, Documents
    >>> has_own_size(Causal()), has_own_size({"*": Causal() & Documents([2, 3])})
    (False, True)
    """
    relations = expect.values() if isinstance(expect, Mapping) else [expect]
    for one in relations:
        for part in bound_of(one).items if is_expected(one) else ():
            try:
                for size in (7, 11):
                    part.on(size)
            except ErlangenError:
                return True
    return False


def about_given_alone(expect: Expectation, other_items: bool, other_content: bool) -> bool:
    """Whether an expectation cannot be held under another feeding: it speaks of one size, and content or
    sizes are others there, or it says item by item what other items, or padding of the audit's own, change.

    >>> from erlangen.relations import Causal, Full, Padding
    >>> about_given_alone(Batch([Full(), Padding(9)]), True, False)
    True
    >>> about_given_alone(Causal(), True, True)
    False
    """
    if other_items:
        relations = expect.values() if isinstance(expect, Mapping) else [expect]
        if any(len(set(bound_of(one).items)) > 1 for one in relations if is_expected(one)):
            return True
    return other_content and has_own_size(expect)


def at_most(expect: Expectation) -> Expectation:
    """The same expectation as an upper bound.

    >>> from erlangen.relations import Causal
    >>> print(at_most({"*": Causal()})["*"])
    at most Causal()
    """
    if expect is None or isinstance(expect, AtMost):
        return expect
    if is_expected(expect):
        return AtMost(bound_of(expect))
    if isinstance(expect, Mapping):
        return {pattern: one if isinstance(one, AtMost) else AtMost(one) for pattern, one in expect.items()}

    def bounded(call: Measured) -> Expected | None:
        answer = expect(call)
        return AtMost(answer) if is_expected(answer) and not isinstance(answer, AtMost) else answer

    return bounded


def check_expectation(expect: Any) -> None:
    """Raise unless `expect` is a relation, a mapping of patterns to relations, or a callable.

    >>> check_expectation("causal")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: expect must be a relation, a mapping from module-name patterns to
    relations, or a callable; got 'causal'; write it without quotation marks, as er.Causal()
    """
    if expect is None or is_expected(expect):
        return
    for one in expect.values() if isinstance(expect, Mapping) else (expect,):
        if isinstance(one, type) and issubclass(one, AnyRelation):
            raise ParameterError(
                f"expect is the class {one.__name__}, not a relation: write {one.__name__}(...) with its "
                "parameters, such as Causal() or Window(lookback=3)"
            )
        if isinstance(one, AnyRelation) and one.weights is not None:
            raise ParameterError(
                f"weights are measured, not expected: expect {one.support!r} in place of {one!r}, and read "
                "the weights off each call"
            )
    if isinstance(expect, Mapping):
        for pattern, relation in expect.items():
            if not isinstance(pattern, str) or not is_expected(relation):
                raise ParameterError(f"expect maps patterns to relations; got {pattern!r}: {relation!r}")
        return
    if not callable(expect):
        hint = "; write it without quotation marks, as er.Causal()" if isinstance(expect, str) else ""
        raise ParameterError(
            "expect must be a relation, a mapping from module-name patterns to relations, or a callable; "
            f"got {expect!r}{hint}"
        )


def check_batch(expect: Expectation, batch: int) -> None:
    """Raise unless every `Batch` that is expected has one relation for each sequence of the inputs, or one
    for all."""
    for one in expect.values() if isinstance(expect, Mapping) else (expect,):
        items = len(bound_of(one).items) if is_expected(one) else 1
        if items not in (1, batch):
            raise ParameterError(
                f"expected {one}: Batch has {items} relations, and the inputs are a batch of {batch}"
            )


def expected_of(expect: Expectation, call: Measured) -> Expected | None:
    """The relation expected of a call, or None when nothing is.

    One relation is expected of every self-attention call. In a mapping the first pattern that matches the
    module's name counts (`*` matches anything). A callable is asked with the call.
    """
    if expect is None:
        return None
    if is_expected(expect):
        return expect if call.kind == "self" else None
    if isinstance(expect, Mapping):
        return next((r for pattern, r in expect.items() if fnmatchcase(call.module, pattern)), None)
    try:
        answer = expect(call)
    except Exception as error:
        raise RaisingExpectation(
            f"expect({call.module!r}) raised {type(error).__name__}: {error} (a call of {call.queries} "
            f"queries and {call.keys} keys): let it return a relation, or None where nothing is expected"
        ) from error
    if answer is not None and not is_expected(answer):
        raise ParameterError(f"expect({call.module!r}) must be a relation or None, got {answer!r}")
    return answer


def bind_expected(
    relation: Expected, call: Measured, item: int, head: int, real_keys: np.ndarray | None
) -> Neighborhoods:
    """The expected neighborhoods of one item and head; keys that are padding are expected to be unread."""
    cells = bound_of(relation).grid()
    heads = cells[_within(item, len(cells), call, relation, "batch items")]
    member = heads[_within(head, len(heads), call, relation, "heads")]
    try:
        bound = member.on(call.queries, call.keys)
    except ErlangenError as error:
        raise ParameterError(
            f"expected {in_words(relation, call.queries, call.keys)} of {call.module!r}, which it cannot be: "
            f"{without_masks(str(error))}"
        ) from error
    if real_keys is None:
        return bound
    return Neighborhoods.from_dense(bound.dense() & real_keys[None, :])


def _within(index: int, size: int, call: Measured, relation: Expected, what: str) -> int:
    if size == 1 or index < size:
        return index if size > 1 else 0
    raise ParameterError(f"expected {relation} of {call.module!r}, which has more than {size} {what}")


def _check_members(relation: Expected, call: Measured) -> None:
    """Raise unless a `PerHead` has one relation for each head."""
    heads = len(bound_of(relation).grid()[0])
    if heads not in (1, call.heads):
        raise ParameterError(
            f"expected {relation} of {call.module!r}, which has {call.heads} heads: PerHead has {heads} "
            f"relations, which is {'more' if heads > call.heads else 'less'} than that"
        )


def first_break(
    relation: Expected,
    call: Measured,
    measured: str,
    real_queries: np.ndarray | None,
    real_keys: np.ndarray | None,
    where: str,
) -> Finding | None:
    """The first edge on which a call differs from what is expected; rows of padding queries do not count."""
    _check_members(relation, call)
    for b, heads in enumerate(call.kernel.items):
        for h, bound in enumerate(heads):
            keys, rows = (_real_at(real, b, h, call.heads) for real in (real_keys, real_queries))
            meant = bind_expected(relation, call, b, h, keys)
            if meant == bound:
                continue
            apart = bound - meant if isinstance(relation, AtMost) else meant ^ bound
            edges = apart.edges()
            if rows is not None:
                edges = edges[rows[edges[:, 0]]]
            if len(edges):
                i, j = _telling(edges, bound)
                text = in_words(relation, call.queries, call.keys)
                if real_keys is not None and not real_keys.all():
                    text += ", padding unread"
                head = None if call.heads == 1 or len(set(heads)) == 1 else h
                extra = bool(bound.contains(i, j))
                return Finding(
                    "edge",
                    call.module,
                    text,
                    measured,
                    b,
                    head,
                    i,
                    j,
                    extra,
                    where,
                    source=call.source,
                )
    return None


def _real_at(real: np.ndarray | None, item: int, head: int, heads: int) -> np.ndarray | None:
    """The real positions of an item; where it has several sequences, of the one that the head belongs to:
    their heads stand one after the other."""
    if real is None:
        return None
    found = of_item(real, item)
    return found if found.ndim == 1 else found[head * len(found) // heads]


def _telling(edges: np.ndarray, bound: Neighborhoods) -> tuple[int, int]:
    """An extra edge if there is one, for a leak is worse than a loss."""
    extra = bound.contains(edges[:, 0], edges[:, 1])
    chosen = edges[np.flatnonzero(extra)[0]] if extra.any() else edges[0]
    return int(chosen[0]), int(chosen[1])
