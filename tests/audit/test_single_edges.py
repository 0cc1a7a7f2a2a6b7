"""Any single-edge change of any relation in any head of any layer is caught, and so is its place."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from audit_models import STYLES, Stack, vectors
from erlangen.audit import audit
from erlangen.audit.expect import expected_of
from erlangen.relations import FromMask

N = 5
EXACT = [style for style in STYLES if style != "after_softmax"]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_flip_is_caught(data):
    layers, heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    bits = st.lists(st.booleans(), min_size=N * N, max_size=N * N)
    masks = []
    for _ in range(layers):
        drawn = [np.array(data.draw(bits)).reshape(N, N) for _ in range(heads)]
        masks.append(
            [mask | np.eye(N, dtype=bool) for mask in drawn]
        )  # no empty rows: they are a fault apart
    expect = {
        f"layers.{layer}.attention": er.PerHead([FromMask(mask) for mask in row])
        if heads > 1
        else FromMask(row[0])
        for layer, row in enumerate(masks)
    }
    style = data.draw(st.sampled_from(EXACT))
    right = audit(Stack(masks, style), vectors(N, 1), expect, flow=False, variants=False)
    assert right.verdict == "holds"

    layer, head = data.draw(st.integers(0, layers - 1)), data.draw(st.integers(0, heads - 1))
    off_diagonal = [(i, j) for i in range(N) for j in range(N) if i != j]
    i, j = data.draw(st.sampled_from(off_diagonal))
    masks[layer][head][i, j] ^= True
    wrong = audit(Stack(masks, style), vectors(N, 1), expect, flow=False, variants=False)
    assert wrong.verdict == "violated"
    (broken,) = wrong.counterexamples
    assert broken.module == f"layers.{layer}.attention"
    assert (broken.query, broken.key, broken.extra) == (i, j, bool(masks[layer][head][i, j]))
    assert heads == 1 or broken.head in (head, None)
    assert all(expected_of(expect, call.measured) is not None for call in wrong.calls)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_the_flow_is_the_product_of_the_relations(data):
    torch.manual_seed(0)
    layers = data.draw(st.integers(1, 3))
    bits = st.lists(st.booleans(), min_size=N * N, max_size=N * N)
    masks = [np.array(data.draw(bits)).reshape(N, N) | np.eye(N, dtype=bool) for _ in range(layers)]
    report = audit(Stack([[mask] for mask in masks]), vectors(N, 1), variants=False)
    reach = np.eye(N, dtype=bool)
    for mask in masks:
        reach = (mask.astype(int) @ reach.astype(int)) > 0
    assert report.flow is not None
    assert np.array_equal(report.flow.flow.relations[0].dense(), reach)
    assert report.flow.outside_attention is not None
    assert report.flow.outside_attention[0].num_edges == 0
