"""Every question that is asked of a relation, each answered a second time from the definition.

A question takes a relation of any kind and a size that it fits (vectors, for one that depends on the data).
What a question is not about is refused in words, and a test sees that.
"""

from __future__ import annotations

import copy
import json
import pickle
from itertools import product

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.attention import attend, attend_triples, plan
from erlangen.errors import DataError, ParameterError
from erlangen.relations import Neighborhoods
from erlangen.relations.catalogue import WRITTEN
from erlangen.relations.geometries import FiniteGeometry
from erlangen.relations.parse import parse
from erlangen.show.drawing import drawing
from erlangen.symmetry import symmetry, translations
from erlangen.symmetry.translations import on_integers
from erlangen.taxonomy import TernaryBias, classify, verify
from erlangen.testing.strategies import examples


def drawn(data, name, n):
    """An example of the kind of this name, and the size or vectors that it is bound to."""
    kind = WRITTEN[name]
    value = data.draw(examples(kind, n)) if isinstance(kind, type) else kind()
    if isinstance(value, FiniteGeometry):
        value = er.Lines(value)
    if value.arity == 3 and value.size is not None:
        n = value.size
    return value, np.random.default_rng(n).normal(size=(n, 2)) if value.data_dependent else n


def length(n):
    return n if isinstance(n, int) else len(n)


def single(relation):
    """Whether it is one relation of pairs without weights."""
    return relation.arity == 2 and not relation.axes and relation.weights is None


def supports(relation, n):
    """The boolean matrices (items, heads, queries, keys) of a relation of pairs."""
    return np.array([[one.on(n).dense() for one in item] for item in relation.grid()])


def log_weights(relation, n):
    """The log-weights of every head where they are read, -inf elsewhere: (items, heads, queries, keys)."""
    read = supports(relation, n)
    if relation.weights is None:
        return np.where(read, 0.0, -np.inf)
    if getattr(relation, "edges", None) is not None:  # one number for each edge that there is, and no other
        return relation.on(n).dense()[None]
    pairs = np.indices((n, n)).reshape(2, -1)
    found = np.array(relation.weights.with_support(er.Full())._by_pair(*pairs)).reshape(-1, n, n)
    return np.where(read, found[None], -np.inf)


def binding(relation, n):
    if relation.arity == 3:
        bound = relation.on(n)
        triples = {tuple(triple) for triple in bound.triples().tolist()}
        everything = np.array(list(product(range(n), repeat=3))).reshape(-1, 3)
        assert bound.contains(*everything.T).tolist() == [tuple(t) in triples for t in everything.tolist()]
        assert bound == relation.on(n)
        assert bound.num_triples == len(triples)
        return
    for one in {one for item in relation.grid() for one in item}:
        bound = one.on(n)
        i, j = np.indices((length(n), length(n)))
        assert bound.on(length(n)) is bound
        assert bound == Neighborhoods.from_dense(bound.dense()) or not length(n)
        if one.data_dependent:
            with pytest.raises(DataError):
                one.on(length(n))
            return
        assert np.array_equal(one.holds(i, j, n), bound.dense())
        positions = np.arange(n)[::-1]
        if one.own_sizes is None or one.own_sizes[0] == n:
            assert np.array_equal(one.rows(positions, n).dense(), bound.dense()[::-1])
            runs = [one.run(int(i), n) for i in range(n)]
            assert all(r is None or np.isin(np.arange(n), r).tolist() == bound.dense()[i].tolist()
                       for i, r in enumerate(runs))  # fmt: skip


def value(relation, n):
    names = {**vars(er.relations), **WRITTEN}
    again = [parse(repr(relation)), eval(repr(relation), names), copy.deepcopy(relation)]
    assert [*again, pickle.loads(pickle.dumps(relation))] == [relation] * 4
    assert {hash(one) for one in again} == {hash(relation)}
    with pytest.raises(TypeError, match=r"& \| ~"):
        bool(relation)


def laws(relation, n):
    for one in (one for item in relation.grid() for one in item if relation.arity == 2):
        if one.own_sizes is None or one.own_sizes[0] == one.own_sizes[1]:
            known = classify(one.on(n)).properties
            assert all(known[law] in (True, None) for law in one.laws), one.laws


def transpose(relation, n):
    if relation.weights is not None or relation.arity == 3:
        assert not hasattr(relation, "T")
    elif not relation.data_dependent:
        square = relation.T
        if (own := relation.own_sizes) is None or own[0] == own[1]:
            assert np.array_equal(supports(square, n), supports(relation, n).swapaxes(-1, -2))


def group(relation, n):
    if "item" in relation.axes:
        with pytest.raises(ParameterError, match="batch item"):
            symmetry(relation, n)
        return
    if relation.arity == 3:
        bound = relation.on(n)
        assert all(bound.permute(g) == bound for g in symmetry(relation, n).generators)
        return
    asked = relation.on(n) if relation.data_dependent else relation
    found = symmetry(asked, length(n))
    with np.errstate(invalid="ignore"):
        weights = log_weights(relation, n)[0]
        shares = np.exp(weights - np.nan_to_num(weights.max(-1, keepdims=True, initial=-np.inf), neginf=0))
    for g in found.generators:
        assert found.contains(g)
        assert np.allclose(shares[:, g][:, :, g], shares)


def shifts(relation, n):
    if not single(relation):
        with pytest.raises(ParameterError, match="takes a relation or neighborhoods"):
            translations(relation, n)
        return
    dense = relation.on(n).dense()
    if not relation.data_dependent:
        known = translations(relation, n)
        assert known.toeplitz == np.array_equal(dense[1:, 1:], dense[:-1, :-1])
        assert not (known.prefix and np.triu(dense, 1).any())
    assert on_integers(relation) in (None, "Z", "Z with reversals", "Sym(Z)")


def verdict(relation, n):
    if relation.axes:
        with pytest.raises(ParameterError, match="holds several"):
            classify(relation, n)
        return
    bias = classify(relation, n)
    if relation.arity == 3:
        assert isinstance(bias, TernaryBias)
        bound = relation.on(n)
        assert all(bound.contains(*w) == (name == "distinct") for name, w in bias.witnesses.items())
        return
    bound = relation.support.on(n)
    assert bias.certificates
    assert all(verify(proof, bound) for proof in bias.certificates.values())
    assert json.loads(json.dumps(bias.as_dict()))["relation"] == repr(relation)
    assert (bias.weights is None) == (relation.weights is None)


def picture(relation, n):
    if relation.data_dependent:
        with pytest.raises(DataError):
            drawing(relation, length(n)).text()
        return
    shown = drawing(relation, n)
    parts = [one for item in relation.grid() for one in item] if relation.axes else [relation]
    assert all(repr(one) in shown.text() for one in parts)
    assert json.dumps(shown.facts())


def mask(relation, n):
    if relation.arity == 3:
        return
    if relation.data_dependent:
        with pytest.raises(DataError):
            relation.mask(length(n))
        return
    expected = supports(relation.support, n)
    assert np.array_equal(np.broadcast_to(relation.mask(n).numpy(), expected.shape), expected)
    for one in {one for item in relation.grid() for one in item}:  # as FlexAttention asks, index by index
        at = torch.arange(n)
        held = torch.vmap(torch.vmap(lambda i, j, one=one: one.holds(i, j, n), (None, 0)), (0, None))
        assert np.array_equal(held(at, at).numpy(), one.on(n).dense())


def attention(relation, n):
    generator = torch.Generator().manual_seed(0)
    shape = (3, 2, length(n), 4)
    if relation.arity == 3:
        tensors = torch.randn(5, 1, 2, n, 4, dtype=torch.float64, generator=generator)
        q, k1, k2, v1, v2 = tensors
        expected = torch.zeros_like(q)
        for i in range(n):
            pairs = relation.on(n).row(i)
            if pairs:
                j, last = torch.tensor(pairs).T
                scores = (q[..., i, None, :] * k1[..., j, :] * k2[..., last, :]).sum(-1) / 2
                mixed = v1[..., j, :] * v2[..., last, :]
                expected[..., i, :] = (scores.softmax(-1)[..., None] * mixed).sum(-2)
        torch.testing.assert_close(attend_triples(*tensors, relation), expected)
        return
    items, heads = len(relation.grid()), len(relation.grid()[0])
    if relation.weights is not None:
        heads = max(heads, relation.weights.heads)
    shape = (3, items, heads, length(n), 4)
    q, k, v = torch.randn(*shape, dtype=torch.float64, generator=generator)
    bound = relation
    if relation.data_dependent:
        q, k = torch.from_numpy(n)[None, None], torch.from_numpy(n)[None, None]
        v = q
    bias = torch.from_numpy(log_weights(bound, n))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
    expected = scores.softmax(-1).nan_to_num(0.0) @ v
    torch.testing.assert_close(attend(q, k, v, relation, backend="reference"), expected)
    torch.testing.assert_close(attend(q, k, v, relation), expected)
    assert plan(q, k, v, relation).backend


QUESTIONS = {
    "binding": binding,
    "value": value,
    "laws": laws,
    "transpose": transpose,
    "group": group,
    "shifts": shifts,
    "verdict": verdict,
    "picture": picture,
    "mask": mask,
    "attention": attention,
}
"""What is asked -> a function of a relation and a size it fits, which asserts what the answer must be."""
