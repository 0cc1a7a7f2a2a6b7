"""Relations from what people have at hand: document ids, cumulative lengths, masks of every shape."""

from __future__ import annotations

import inspect
import pydoc

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import erlangen as er
from erlangen.errors import ErlangenError, ParameterError, SizeError
from erlangen.integrations import masks
from erlangen.relations.neighborhoods import Neighborhoods

rng = np.random.default_rng(0)


@pytest.mark.parametrize("give", [list, np.array, torch.tensor], ids=["list", "numpy", "torch"])
@pytest.mark.parametrize("ids", [[0], [3, 3, 3], [5, 5, 1, 2, 2, 2], [-1, 0, 0, 9]])
def test_documents_from_ids_relate_equal_ids(give, ids):
    array = np.array(ids)
    expected = array[:, None] == array
    assert np.array_equal(er.Documents.from_ids(give(ids)).on(len(ids)).dense(), expected)


def test_documents_of_a_batch_of_ids():
    ids = torch.tensor([[0, 0, 1, 1], [4, 5, 5, 5]])
    family = er.Documents.from_ids(ids)
    assert torch.equal(family.mask(4)[:, 0], ids[:, :, None] == ids[:, None])
    assert er.Documents.from_ids(torch.empty(0, dtype=torch.long)) == er.Documents([])


@pytest.mark.parametrize("lengths", [[], [4], [3, 0, 2], [1, 1, 1]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_documents_from_cumulative_lengths(lengths, dtype):
    ends = F.pad(torch.tensor(lengths, dtype=dtype).cumsum(0), (1, 0)).to(dtype)
    assert er.Documents.from_cu_seqlens(ends) == er.Documents(lengths)


@pytest.mark.parametrize(
    "give", [lambda m: m, torch.from_numpy, lambda m: m.astype(np.int64), np.ndarray.tolist]
)
@pytest.mark.parametrize(
    "shape", [(3, 7), (3, 5, 7), (3, 1, 7), (3, 1, 5, 7), (3, 2, 5, 7), (3, 2, 1, 7), (1, 1, 5, 7)]
)
def test_a_batch_of_masks_reads_exactly_what_the_mask_says(shape, give):
    """Each shape against torch's own broadcasting to (batch, heads, queries, keys)."""
    dense = rng.random(shape) < 0.6
    full = {2: dense[:, None, None], 3: dense[:, None], 4: dense}[dense.ndim]
    expected = np.broadcast_to(full, (shape[0], 2, 5, 7))
    family = er.Batch.from_mask(give(dense))
    got = np.broadcast_to(family.mask(5, 7).numpy(), expected.shape)
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("shape", [(2, 5, 7), (2, 1, 7)])
def test_masks_per_head(shape):
    dense = rng.random(shape) < 0.6
    got = er.PerHead.from_mask(dense).mask(5, 7).numpy()
    assert np.array_equal(got[0], np.broadcast_to(dense, (2, 5, 7)))


def test_padding_is_told_by_its_side():
    rows = [[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 0], [1, 0, 1], [0, 1, 0]]
    told = 'Batch([Padding(2), Padding(2, side="left"), Full(), Padding(0), Global(keys=(0, 2)), '
    assert repr(er.Batch.from_mask(rows)) == told + "Global(keys=range(1, 2))])"


def test_attention_over_a_mask_is_that_of_sdpa():
    q = torch.randn(3, 2, 5, 4, dtype=torch.double)
    mask = torch.from_numpy(rng.random((3, 2, 5, 5)) < 0.6) | torch.eye(5, dtype=torch.bool)
    expected = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    torch.testing.assert_close(er.attend(q, q, q, er.Batch.from_mask(mask)), expected)
    wrong = er.attend(q, q, q, er.Batch.from_mask(~mask))
    assert not torch.allclose(wrong, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: er.Documents.from_ids([1, 2, 2, 1]), "id 1 comes back at position 3"),
        (lambda: er.Documents.from_ids([0.0, 1.0]), "takes integers, got float64"),
        (lambda: er.Documents.from_ids([True, False]), "takes integers, got bool"),
        (lambda: er.Documents.from_ids(3), r"shape \(\)"),
        (lambda: er.Documents.from_ids(np.zeros((1, 2, 3), int)), r"shape \(1, 2, 3\)"),
        (lambda: er.Documents.from_ids(np.zeros((0, 3), int)), r"shape \(0, 3\)"),
        (lambda: er.Documents.from_cu_seqlens([2, 3]), r"start with 0.*\[2, 3\].*Documents\(lengths\)"),
        (lambda: er.Documents.from_cu_seqlens([0, 3, 2]), "never decrease"),
        (lambda: er.Documents.from_cu_seqlens([]), "start with 0"),
        (lambda: er.Documents.from_cu_seqlens([[0, 1]]), r"\(documents \+ 1,\)"),
        (lambda: er.Batch.from_mask([1, 0]), r"\(batch, keys\).* got shape \(2,\)"),
        (lambda: er.Batch.from_mask(np.ones((1, 1, 1, 1, 1), bool)), "got shape"),
        (lambda: er.Batch.from_mask(np.ones((0, 4), bool)), r"got shape \(0, 4\)"),
        (lambda: er.Batch.from_mask(torch.zeros(2, 3)), "got float32; for an additive mask"),
        (lambda: er.Batch.from_mask([[0, 2]]), "0/1 integers, 1 = may be read, got 2"),
        (lambda: er.PerHead.from_mask([[1, 0]]), r"\(heads, queries, keys\), got shape \(1, 2\)"),
        (
            lambda: er.FromMask(np.ones((2, 4, 4), bool)),
            r"PerHead.from_mask\(mask\).*Batch.from_mask\(mask\)",
        ),
        *(
            (
                lambda make=make, mask=mask: make(mask),
                f"got {'float32' if kind == 'float16' else kind}; for an additive mask pass mask == 0",
            )
            for kind in ("float16", "float32", "float64", "complex64")
            for make, mask in (
                (er.FromMask, np.zeros((3, 3), kind)),
                (er.FromMask, np.ones((3, 3), kind)),
                (er.FromMask, np.where(np.tri(3) > 0, 0, -np.inf).astype(kind)),
                (er.PerHead.from_mask, np.zeros((2, 3, 3), kind)),
                (er.Batch.from_mask, np.zeros((2, 3, 3), kind)),
            )
        ),
        (lambda: er.FromMask(torch.zeros(3, 3, dtype=torch.bfloat16)), "for an additive mask pass mask == 0"),
        (lambda: er.FromMask([["a"]]), "got <U1"),
        (lambda: er.FromMask([[None]]), "got object"),
        (lambda: er.FromMask([[0, 2]]), "0/1 integers, 1 = may be read, got 2"),
        (lambda: er.FromMask(torch.ones(2, 3, 4, 4)), r"\(2, 3, 4, 4\): write Batch.from_mask\(mask\)"),
    ],
)
def test_what_is_no_mask_or_no_document_is_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


@pytest.mark.parametrize("give", [list, tuple, iter, lambda rows: [torch.tensor(row) for row in rows]])
@pytest.mark.parametrize(
    "make",
    [er.FromMask, er.Graph, er.Graph.from_pairs, er.Graph.from_edge_index, er.PerHead.from_mask,
     er.Batch.from_mask, er.Documents.from_ids, er.Documents.from_cu_seqlens,
     lambda rows: er.Triples(3, rows), lambda rows: er.Weighted(er.Full(), bias=rows),
     lambda rows: er.Nearest(1).on(rows, rows), lambda rows: er.Causal().rows(rows, keys=3),
     lambda rows: er.Causal().on(3).restrict(rows), lambda rows: er.Causal().on(3).permute(rows),
     Neighborhoods.from_dense, lambda rows: er.Causal().on(3).contains(rows, 0)],
)  # fmt: skip
def test_rows_of_unequal_length_are_refused_in_words(make, give):
    with pytest.raises(ErlangenError):
        make(give([[1], [1, 0]]))


RELATIONS = {
    "relation": er.Causal(),
    "heads": er.PerHead([er.Window(1), er.Full()]),
    "batch": er.Batch([er.Padding(3), er.Full()]),
    "batch of heads": er.Batch([er.PerHead([er.Causal(), er.Full()]), er.Padding(2)]),
}


@pytest.mark.parametrize("second", RELATIONS)
@pytest.mark.parametrize("first", RELATIONS)
@pytest.mark.parametrize("operator", ["and", "or", "sub"])
def test_batches_and_relations_combine_in_either_order(first, second, operator):
    def combined(a, b):
        return {"and": lambda: a & b, "or": lambda: a | b, "sub": lambda: a - b}[operator]()

    def dense(relation):
        mask = relation.mask(4)
        return (mask if mask.dim() == 4 else mask[None, None]).expand(2, 2, 4, 4)

    a, b = dense(RELATIONS[first]), dense(RELATIONS[second])
    expected = {"and": a & b, "or": a | b, "sub": a & ~b}[operator]
    assert torch.equal(dense(combined(RELATIONS[first], RELATIONS[second])), expected)


def test_items_of_different_heads_make_no_mask():
    family = er.Batch([er.PerHead([er.Full()] * 2), er.PerHead([er.Full()] * 3)])
    with pytest.raises(SizeError, match="items of 2 and of 3 heads"):
        family.mask(4)


def test_masks_agree_with_those_of_the_integrations():
    for relation in RELATIONS.values():
        assert torch.equal(relation.mask(3, 5), masks.mask(relation, 3, 5))


def test_nothing_else_combines_with_a_family():
    with pytest.raises(TypeError, match="unsupported operand"):
        3 & er.Batch([er.Full()])


def test_show_prints_what_the_command_prints(capsys):
    er.Bipartite(1, 2).show()
    own = capsys.readouterr().out
    er.Bipartite(1, 2).show(3)
    assert own == capsys.readouterr().out
    assert "Bipartite(encoder=1, decoder=2) on 3 queries x 3 keys" in own
    er.PerHead([er.Causal(), er.Full()]).show(2, 3)
    assert "head 1: Full() on 2 queries x 3 keys" in capsys.readouterr().out
    er.ALiBi(slopes=[0.5]).show(4)
    assert "ALiBi" in capsys.readouterr().out
    with pytest.raises(SizeError, match=r"no size of its own.*show\(n\)"):
        er.Causal().show()


def test_the_mask_of_a_weighted_relation_is_that_of_its_support():
    assert torch.equal((er.ALiBi(slopes=[0.5]) & er.Window(1)).mask(3), (er.Causal() & er.Window(1)).mask(3))


@pytest.mark.parametrize("name", ["audit", "symmetry"])
def test_help_of_a_callable_package_shows_the_call(name):
    package = getattr(er, name)
    function = getattr(package, name)
    assert inspect.signature(package) == inspect.signature(function)
    shown = pydoc.plain(pydoc.render_doc(package))
    head = shown[: shown.index("PACKAGE CONTENTS")]
    written = head[head.index(f"erlangen.{name}(") : head.index(") ->")]
    assert [word.partition("=")[0].strip() for word in written.partition("(")[2].split(",")] == [
        word
        for parameter in inspect.signature(function).parameters.values()
        for word in (["*"] if parameter.name in ("flow", "keys") else []) + [parameter.name]
    ]
    assert f"{name}(" in shown[shown.index("FUNCTIONS") :]


def test_compare_is_at_the_top():
    assert er.compare is er.audit.compare
    assert "compare" in dir(er)
