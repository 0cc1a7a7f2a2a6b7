"""What each relation means, pair by pair, written from its definition and from nothing else."""

from __future__ import annotations

from itertools import product

import numpy as np

from erlangen.relations import (
    Bipartite,
    Blocks,
    Causal,
    Dilated,
    Documents,
    Empty,
    FromMask,
    Full,
    Global,
    Graph,
    Grid,
    GridOffset,
    Identity,
    Offset,
    Padding,
    Prefix,
    Random,
    Relation,
    Ring,
    Window,
)
from erlangen.relations import expressions as op


def _document(lengths, position):
    for index, length in enumerate(lengths):
        if position < length:
            return index
        position -= length
    return None


def _cell(shape, position):
    return np.unravel_index(position, shape)


def _at_offset(r, i, j, n):
    cell = i - n + int(np.prod(r.queries))
    if not 0 <= cell < np.prod(r.queries):
        return False
    query, key = _cell(r.queries, cell), _cell(r.shape, j)
    return all(int(k) - int(q) == d for q, k, d in zip(query, key, r.by, strict=True))


# (relation, query position i, key position j, number of keys n) -> bool
PAIR = {
    Full: lambda r, i, j, n: True,
    Empty: lambda r, i, j, n: False,
    Identity: lambda r, i, j, n: i == j,
    Causal: lambda r, i, j, n: j <= i,
    Prefix: lambda r, i, j, n: j <= i or j < r.length,
    Window: lambda r, i, j, n: -r.lookahead <= i - j <= r.lookback,
    Ring: lambda r, i, j, n: (
        any((i - d) % n == j for d in range(r.lookback + 1))
        or any((i + d) % n == j for d in range(r.lookahead + 1))
    ),
    Dilated: lambda r, i, j, n: (i - j) % r.step == 0,
    Bipartite: lambda r, i, j, n: j < r.encoder <= i,
    Documents: lambda r, i, j, n: (
        0 <= i < n and _document(r.lengths, i) == _document(r.lengths, j) is not None
    ),
    Blocks: lambda r, i, j, n: i // r.size == j // r.size,
    Padding: lambda r, i, j, n: j < r.length if r.side == "right" else j >= n - r.length,
    Global: lambda r, i, j, n: j in r.keys or i in r.queries,
    Grid: lambda r, i, j, n: all(
        abs(int(a) - int(b)) <= w
        for a, b, w in zip(_cell(r.shape, i), _cell(r.shape, j), r.radius, strict=True)
    ),
    Offset: lambda r, i, j, n: j - i == r.by,
    GridOffset: _at_offset,
    Graph: lambda r, i, j, n: [i, j] in r.edges().tolist(),
}


def dense(relation: Relation, queries: int, keys: int) -> np.ndarray:
    """The matrix of an expression: leaves pair by pair, operators by matrix algebra."""
    square = lambda r: dense(r, keys, keys)  # noqa: E731
    first = keys - queries
    match relation:
        case op.Intersection():
            return np.logical_and.reduce([dense(r, queries, keys) for r in relation.operands])
        case op.Union():
            return np.logical_or.reduce([dense(r, queries, keys) for r in relation.operands])
        case op.Complement():
            return ~dense(relation.operands[0], queries, keys)
        case op.Transpose():
            return square(relation.operands[0]).T[first:]
        case op.Composition():
            out = dense(relation.operands[0], queries, keys)
            for step in relation.operands[1:]:
                out = multiply(out, square(step))
            return out
        case op.Power():
            out = np.eye(keys, dtype=bool)[first:]
            for _ in range(relation.exponent):
                out = multiply(out, square(relation.operands[0]))
            return out
        case op.Closure():
            one = square(relation.operands[0])
            reached = one
            for _ in range(keys):
                reached = reached | multiply(reached, one)
            return reached[first:]
        case FromMask():
            mask = relation._bound.dense()
            return mask[mask.shape[0] - queries :]
        case Random():
            return relation.on(keys).dense()[first:]
        case _:
            out = np.zeros((queries, keys), bool)
            for a, j in product(range(queries), range(keys)):
                out[a, j] = PAIR[type(relation)](relation, first + a, j, keys)
            return out


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(int) @ b.astype(int) > 0
