"""Relations from text: the expression as one writes it in Python, read by a small grammar, never evaluated.

    expression := relation | family | ( expression )
                | ~ expression
                | expression (& | `|` | - | @) expression
                | expression ** integer
                | expression .T | expression .reach(integer) | expression .closure()
    relation   := NAME(argument, NAME=argument, ...)
    argument   := integer | string | True | False | range(...) | [argument, ...] | expression
    weighted   := NAME(..., number, ...) | weighted & expression
    number     := integer | decimal | Fraction(integer, integer), alone, in lists, or {integer: number}

A name is one of `catalogue.WRITTEN`; a prefix `er.` or `erlangen.` is allowed. The arguments of weighted
relations may be decimals and fractions; ternary relations combine by & | - with one another.

Python's own parser gives the tree; the walk below accepts these nodes and refuses every other one.
"""

from __future__ import annotations

import ast
import operator
import warnings
from difflib import get_close_matches
from fractions import Fraction
from inspect import isclass, signature
from typing import Any

from erlangen.errors import ErlangenError, ExpressionError
from erlangen.relations.catalogue import WRITTEN
from erlangen.relations.families import Batch, Family, PerHead
from erlangen.relations.geometries import FiniteGeometry
from erlangen.relations.relation import Relation
from erlangen.relations.ternary import TernaryRelation
from erlangen.relations.weighted import WeightedRelation

MAX_TEXT = 100_000
"""Longest text read, in characters."""
MAX_DEPTH = 50
"""Deepest nesting; a chain such as `a | b | c | ...` counts once."""
MAX_RELATIONS = 2_000
"""Most relations in one expression; a family may have many."""
MAX_OPERATORS = 100
"""Most operators in one expression: simplifying compares every operand of a chain with every other."""
MAX_BITS = 256
"""Longest integer, in bits."""
MAX_POSITIONS = 2_000_000
"""Most positions of the edges of a Graph."""
MAX_RANGE = 1_000_000
"""Longest range(...): relations may list its positions."""

_PREFIXES = ("er", "erlangen")
_BINARY = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.Sub: operator.sub,
    ast.MatMult: operator.matmul,
}
_SYMBOLS = {ast.BitAnd: "&", ast.BitOr: "|", ast.Sub: "-", ast.MatMult: "@", ast.Pow: "**"}
_GRAMMAR = "an expression has relations, & | ~ - @ **, .T, .reach(n), .closure() and parentheses"

_ARGUMENTS = "an argument is an integer, a string, True, False, a list, a tuple or range(...)"


def parse(text: str) -> Relation | PerHead | Batch | WeightedRelation | TernaryRelation:
    """The relation, family, weighted or ternary relation that `text` writes.

    `parse(repr(r)) == r` where `repr` is not abbreviated.

    Anything outside the grammar raises `ExpressionError` with the place; parameters outside their domain
    raise the relation's own error.

    >>> parse("Causal() & Window(lookback=2, lookahead=9) | Global(keys=[0])")
    Window(lookback=2) | Global(keys=range(0, 1))
    >>> parse("er.Window(1).reach(3).T")
    Window(lookback=0, lookahead=3)
    >>> parse("ALiBi(slopes=[0.5, 0.25]) & Window(lookback=9)")
    ALiBi(slopes=[0.5, 0.25], relation=Window(lookback=9))
    >>> parse("Causal() & Windw(3)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ExpressionError: no relation is called 'Windw'; did you mean Window?
      Causal() & Windw(3)
                 ^
    >>> parse("Window(-1)")
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: Window(lookback) must be an integer >= 0, got -1
    """
    if not isinstance(text, str):
        raise ExpressionError(f"a relation is parsed from text, got {text!r}")
    return _ExpressionReader(text).read()


class _ExpressionReader:
    """One walk over one text; it keeps the text so that errors can point into it."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        self.relations = 0
        self.operators = 0

    def read(self) -> Relation | PerHead | Batch | WeightedRelation | TernaryRelation:
        if not self.text:
            raise ExpressionError(
                'an empty text is no relation; write for example "Causal() & Window(lookback=3)"'
            )
        if len(self.text) > MAX_TEXT:
            raise ExpressionError(
                f"the expression has {len(self.text)} characters, at most {MAX_TEXT} are read"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about odd literals: those are refused below
                tree = ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            if not error.offset:  # Python's way of saying that the text ends too early
                lines = self.text.split("\n")
                raise self.at(len(lines), len(lines[-1]), "the expression is not finished") from None
            line, column = error.lineno or 1, error.offset - 1
            raise self.at(line, column, f"not an expression: {error.msg}") from None
        except (RecursionError, MemoryError):
            raise ExpressionError(
                f"the expression is nested too deeply (at most {MAX_DEPTH} levels)"
            ) from None
        except ValueError as error:  # null bytes, characters that do not encode
            raise ExpressionError(f"not an expression: {error}") from None
        value = self.expression(tree, 0)
        if isinstance(value, FiniteGeometry):
            raise self.error(tree, f"{value} is a geometry; its ternary relation is Lines({value})")
        return value

    # ------------------------------------------------------------- expressions

    def expression(self, node: ast.expr, depth: int) -> Any:
        """A relation, a family or a weighted relation."""
        if depth > MAX_DEPTH:
            raise self.error(node, f"the expression is nested too deeply (at most {MAX_DEPTH} levels)")
        match node:
            case ast.BinOp(op=ast.Pow()):
                base = self.expression(node.left, depth + 1)
                return self.apply(node, operator.pow, base, self.integer(node.right, "the exponent of **"))
            case ast.BinOp():
                return self.chain(node, depth)
            case ast.UnaryOp(op=ast.Invert()):
                return self.apply(node, operator.invert, self.expression(node.operand, depth + 1))
            case ast.Attribute(attr="T") if not self.is_prefix(node.value):
                return self.pairwise(node, self.expression(node.value, depth + 1), ".T").T
            case ast.Call(func=ast.Attribute(attr="reach" | "closure" as name, value=target)):
                return self.method(node, self.expression(target, depth + 1), name)
            case ast.Call():
                return self.call(node, depth)
            case ast.Name() | ast.Attribute():
                name = self.name(node)
                raise self.error(node, f"{name} is a class; write {name}(...) with its parameters")
            case _:
                raise self.error(node, f"{self.source(node)} is not a relation; {_GRAMMAR}")

    def chain(self, node: ast.BinOp, depth: int) -> Any:
        """a & b | c ...: the left spine in a loop, so that a long chain is not a deep one."""
        spine: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and not isinstance(first.op, ast.Pow):
            spine.append(first)
            first = first.left
        self.operators += len(spine)
        if self.operators > MAX_OPERATORS:
            raise self.error(node, f"the expression has more than {MAX_OPERATORS} operators")
        for link in spine:
            if type(link.op) not in _BINARY:
                raise self.at_operator(link)
        value = self.expression(first, depth + 1)
        for link in reversed(spine):
            right = self.expression(link.right, depth + 1)
            value = self.apply(link, _BINARY[type(link.op)], value, right)
        return value

    def method(self, node: ast.Call, target: Any, name: str) -> Any:
        if isinstance(target, Family):
            raise self.error(
                node, f".{name}() is not defined for a {type(target).__name__}; apply it to its members"
            )
        if name == "closure":
            if node.args or node.keywords:
                raise self.error(node, ".closure() takes nothing")
            return self.pairwise(node, target, ".closure()").closure()
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "layers")]
        if len(given) != 1 or len(node.args) + len(node.keywords) != 1:
            raise self.error(node, ".reach(layers) takes one integer")
        self.pairwise(node, target, ".reach(n)")
        return target.reach(self.integer(given[0], ".reach(layers)"))

    def pairwise(self, node: ast.expr, target: Any, what: str) -> Any:
        if isinstance(target, (TernaryRelation, FiniteGeometry)):
            raise self.error(node, f"{what} is not defined for {target}; ternary relations have & | -")
        if isinstance(target, WeightedRelation):
            raise self.error(
                node, f"{what} is of relations; apply it to the relation inside {self.source(node)}"
            )
        return target

    def call(self, node: ast.Call, depth: int) -> Any:
        name = self.name(node.func)
        self.relations += 1
        if self.relations > MAX_RELATIONS:
            raise self.error(node, f"the expression has more than {MAX_RELATIONS} relations")
        called = WRITTEN[name]
        numbers = isclass(called) and issubclass(called, WeightedRelation)
        arguments = [self.argument(value, depth + 1, numbers) for value in node.args]
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.error(keyword.value, "** of arguments is not read; write them out")
            if keyword.arg in named:
                raise self.error(keyword.value, f"{name} is given {keyword.arg} twice")
            named[keyword.arg] = self.argument(keyword.value, depth + 1, numbers)
        self.check_signature(node, name, arguments, named)
        if name == "Graph":
            self.check_positions(node, [*arguments[:1], named.get("edges", ())])
        return self.apply(node, WRITTEN[name], *arguments, **named)

    def check_positions(self, node: ast.Call, edges: list[Any]) -> None:
        """A graph costs memory for every position up to its largest, and a text names any in ten letters."""
        for edge in edges:
            for pair in edge if isinstance(edge, (list, tuple)) else ():
                for position in pair if isinstance(pair, (list, tuple)) else ():
                    if isinstance(position, int) and position >= MAX_POSITIONS:
                        raise self.error(
                            node,
                            f"an edge names position {position}; at most {MAX_POSITIONS} are read from text",
                        )

    def check_signature(self, node: ast.Call, name: str, arguments: list[Any], named: dict[str, Any]) -> None:
        taken = signature(WRITTEN[name])
        try:
            taken.bind(*arguments, **named)
        except TypeError as error:
            parameters = taken.parameters.values()
            listed = ", ".join(
                p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
            )
            raise self.error(node, f"{name}({listed}): {error}") from None

    def apply(self, node: ast.expr, function: Any, *arguments: Any, **named: Any) -> Any:
        """function(...), with Python's own complaints about arguments turned into ours."""
        try:
            return function(*arguments, **named)
        except ErlangenError:
            raise
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            if isinstance(node, ast.BinOp):
                kinds = " and ".join(type(value).__name__ for value in arguments)
                raise self.at_operator(node, f"{_SYMBOLS[type(node.op)]} does not combine {kinds}") from None
            raise self.error(node, f"{self.source(node)} is no relation: {error}") from None

    # --------------------------------------------------------------- arguments

    def argument(self, node: ast.expr, depth: int, numbers: bool = False) -> Any:
        """A literal, or an expression (the members of a family); `numbers` need not be integers."""
        match node:
            case ast.List() | ast.Tuple():
                if depth > MAX_DEPTH:
                    raise self.error(
                        node, f"the expression is nested too deeply (at most {MAX_DEPTH} levels)"
                    )
                values = [self.argument(element, depth + 1, numbers) for element in node.elts]
                return values if isinstance(node, ast.List) else tuple(values)
            case ast.Constant(value=bool() | str() as value):
                return value
            case ast.Constant(value=float() as value) if numbers:
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float() as value)) if numbers:
                return -value
            case ast.Call(func=ast.Name(id="Fraction"), args=[top, bottom], keywords=[]) if numbers:
                parts = [self.integer(part, "a part of Fraction(...)") for part in (top, bottom)]
                return self.fraction(node, *parts)
            case ast.Dict(keys=keys, values=values) if numbers:
                names = [self.integer(key or node, "a difference j - i") for key in keys]
                return list(zip(names, (self.argument(v, depth + 1, True) for v in values), strict=True))
            case ast.Constant(value=int()) | ast.UnaryOp(op=ast.USub()):
                return self.integer(node, "an argument")
            case ast.Call(func=ast.Name(id="range")):
                return self.range(node)
            case ast.Constant():
                raise self.error(node, f"{self.source(node)} is no argument of a relation; {_ARGUMENTS}")
            case _:
                return self.expression(node, depth)

    def integer(self, node: ast.expr, what: str) -> int:
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                if value.bit_length() > MAX_BITS:
                    raise self.error(node, f"this integer has more than {MAX_BITS} bits")
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as positive):
                return -self.integer(positive, what)
            case _:
                raise self.error(node, f"{what} must be an integer, written out; got {self.source(node)}")

    def fraction(self, node: ast.expr, top: int, bottom: int) -> Fraction:
        if bottom == 0:
            raise self.error(node, "a fraction cannot have denominator 0")
        return Fraction(top, bottom)

    def range(self, node: ast.Call) -> range:
        if node.keywords or not 1 <= len(node.args) <= 3:
            raise self.error(node, "range(...) takes one to three integers")
        values = [self.integer(value, "a bound of range(...)") for value in node.args]
        if len(values) == 3 and values[2] == 0:
            raise self.error(node, "range(...) cannot have step 0")
        listed = range(*values)
        if abs(listed.stop - listed.start) // abs(listed.step) > MAX_RANGE:
            raise self.error(node, f"this range is longer than {MAX_RANGE} positions")
        return listed

    # ------------------------------------------------------------------- names

    def is_prefix(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in _PREFIXES

    def name(self, node: ast.expr) -> str:
        """The known name that `node` writes, with or without a prefix."""
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute) and self.is_prefix(node.value):
            name = node.attr
        elif isinstance(node, ast.Attribute):
            end = (node.end_col_offset or 0) - len(node.attr.encode())
            message = f"relations have .T, .reach(n) and .closure(), not .{node.attr}"
            raise self.at(node.end_lineno or 1, end, message, in_bytes=True)
        else:
            raise self.error(node, f"{self.source(node)} cannot be called; {_GRAMMAR}")
        if name not in WRITTEN:
            lower = {known.lower(): known for known in WRITTEN}
            close = get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
            hint = f"did you mean {lower[close[0]]}?" if close else f"known are {', '.join(sorted(WRITTEN))}"
            raise self.error(node, f"no relation is called {name!r}; {hint}")
        return name

    # ------------------------------------------------------------------ errors

    def source(self, node: ast.expr) -> str:
        """What the user wrote at a node, cut to a readable length."""
        written = " ".join((ast.get_source_segment(self.text, node) or "this").split())
        return written if len(written) <= 60 else f"{written[:57]}..."

    def error(self, node: ast.expr, message: str) -> ExpressionError:
        return self.at(node.lineno, node.col_offset, message, in_bytes=True)

    def at_operator(self, node: ast.BinOp, message: str | None = None) -> ExpressionError:
        """Point at the operator itself, which stands somewhere between its operands."""
        right, left = node.right, node.left
        message = message or f"this operator is not one of relations; {_GRAMMAR}"
        if left.end_lineno != right.lineno:
            return self.error(node, message)
        line = self.text.split("\n")[right.lineno - 1].encode()
        between = line[left.end_col_offset : right.col_offset]
        blank = len(between) - len(between.lstrip(b" \t)"))
        return self.at(right.lineno, (left.end_col_offset or 0) + blank, message, in_bytes=True)

    def at(self, line: int, column: int, message: str, *, in_bytes: bool = False) -> ExpressionError:
        """The error with the line and a caret below the column; long lines are cut around it."""
        lines = self.text.split("\n")
        shown = lines[min(line, len(lines)) - 1]
        if in_bytes:  # the tree counts UTF-8 bytes
            column = len(shown.encode()[:column].decode(errors="ignore"))
        column = max(0, min(column, len(shown)))
        start = max(0, column - 60)
        cut = "".join(c if c.isprintable() else " " for c in shown[start : column + 40])
        before, after = "..." * (start > 0), "..." * (column + 40 < len(shown))
        caret = " " * (len(before) + column - start) + "^"
        return ExpressionError(f"{message}\n  {before}{cut}{after}\n  {caret}")
