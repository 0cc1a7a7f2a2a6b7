"""What `--expect` writes: a relation of every call, or relations by module. It is parsed, never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from erlangen.errors import ErlangenError, ParameterError
from erlangen.relations.parse import parse

AT_MOST = "AtMost"


def expectation(texts: Sequence[str]) -> Any:
    """The expectation that one or several `--expect` write; None for none.

    One EXPRESSION is expected of every self-attention call. `PATTERN=EXPRESSION` is expected of the modules
    whose names match, the first pattern that matches counts. `AtMost(EXPRESSION)` is an upper bound.

    >>> print(expectation(["AtMost(Causal())"]))
    at most Causal()
    >>> expectation(["encoder.*=Full()", "*.self_attn = Window(lookback=3)"])
    {'encoder.*': Full(), '*.self_attn': Window(lookback=3)}
    >>> expectation(["Causal()", "encoder.*=Full()"])
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: --expect 'Causal()' names no modules, and was given beside others: write
    --expect '*=Causal()' for all modules that no pattern before it matches
    """
    split = [(text, *_split(text)) for text in texts]
    if len(split) == 1 and split[0][1] is None:
        return _expected(split[0][0], split[0][2])
    found: dict[str, Any] = {}
    for text, pattern, expression in split:
        if pattern is None:
            raise ParameterError(
                f"--expect {text!r} names no modules, and was given beside others: write "
                f"--expect {'*=' + text.strip()!r} for all modules that no pattern before it matches"
            )
        if not pattern:
            raise ParameterError(
                f"--expect {text!r} has no pattern before its =: write PATTERN=EXPRESSION, such as "
                "'encoder.*=Full()', or the expression alone"
            )
        if pattern in found:
            raise ParameterError(f"--expect {text!r}: the pattern {pattern!r} was given before")
        found[pattern] = _expected(text, expression)
    return found or None


def _split(text: str) -> tuple[str | None, str]:
    """(pattern, expression); no pattern where the first = stands inside the parentheses of an expression."""
    before, equals, after = text.partition("=")
    return (before.strip(), after) if equals and "(" not in before else (None, text)


def _expected(text: str, expression: str) -> Any:
    """A relation or an upper bound; errors begin with what was typed."""
    try:
        inner = _inside_at_most(expression)
        relation: Any = parse(expression if inner is None else inner)
        if relation.arity != 2:
            raise ParameterError(f"a pairwise relation is expected; {relation} is ternary")
        if relation.weights is not None:
            raise ParameterError(f"weights are measured, not expected: write {relation.support}")
    except ErlangenError as error:
        raise type(error)(f"--expect {text!r}: {error}") from None
    if inner is None:
        return relation
    from erlangen.audit.expect import AtMost  # imports torch, which a mistyped expression need not wait for

    return AtMost(relation)


def _inside_at_most(expression: str) -> str | None:
    """What stands inside AtMost(...), which is no relation and so surrounds all of it; None without one."""
    if AT_MOST not in expression:
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # `parse` says what is wrong, and where
    names = [node for node in ast.walk(tree) if _called(node) == AT_MOST]
    if not names:
        return None
    if _called(tree) != AT_MOST or len(names) > 1:
        raise ParameterError("AtMost(...) is no relation: it surrounds the whole expression, once")
    assert isinstance(tree, ast.Call)
    given = [*tree.args, *(one.value for one in tree.keywords if one.arg == "relation")]
    if len(given) != 1 or len(tree.args) + len(tree.keywords) != 1:
        raise ParameterError("AtMost(...) takes one relation, such as AtMost(Causal())")
    return ast.get_source_segment(expression.strip(), given[0])


def _called(node: ast.AST) -> str | None:
    """The name that a call calls, without `er.` and the like."""
    if not isinstance(node, ast.Call):
        return None
    name = node.func
    return name.attr if isinstance(name, ast.Attribute) else name.id if isinstance(name, ast.Name) else None
