"""The Sparse Transformer: its two patterns, what one and two layers reach, and the model over them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import erlangen as er
from erlangen.errors import ParameterError
from erlangen.models.sparse_transformer import SparseTransformer, fixed, strided
from erlangen.relations import Causal, PerHead, Window, reach


def config(**changes):
    sizes = {"vocab_size": 7, "context": 12, "layers": 2, "heads": 2, "width": 8, "stride": 3}
    return SparseTransformer.Config(**{**sizes, **changes})


@pytest.mark.parametrize("n", [1, 5, 16, 23])
@pytest.mark.parametrize("stride", [1, 2, 4, 7])
def test_the_patterns_are_those_of_the_paper(n, stride):
    i, j = np.indices((n, n))
    past = j <= i
    near, far = strided(stride)
    assert np.array_equal(near.on(n).dense(), past & (i - j <= stride))
    assert np.array_equal(far.on(n).dense(), past & ((i - j) % stride == 0))
    for summaries in range(1, stride + 1):
        near, far = fixed(stride, n, summaries)
        assert np.array_equal(near.on(n).dense(), past & (i // stride == j // stride))
        assert np.array_equal(far.on(n).dense(), past & (j % stride >= stride - summaries))


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_two_layers_reach_the_whole_past_and_one_does_not(stride):
    """Exact at every n up to 24; the argument for all n is at the head of the model's file."""
    for n in range(1, 25):
        heads = PerHead(strided(stride))
        assert reach([heads] * 2).on(n) == Causal().on(n)
        assert (reach([heads]).on(n) == Causal().on(n)) == (stride == 1 or n < stride + 2)
        for summaries in {1, stride}:
            heads = PerHead(fixed(stride, n, summaries))
            assert reach([heads] * 2).on(n) == Causal().on(n)
            assert (reach([heads]).on(n) == Causal().on(n)) == (stride == summaries or n < stride + 1)


def test_reach_is_the_boolean_product_with_residuals():
    a, b = Window(lookback=1), er.Dilated(3)
    one = np.eye(9, dtype=bool) | a.on(9).dense()
    two = np.eye(9, dtype=bool) | b.on(9).dense()
    # the last layer stands on the left
    assert np.array_equal(reach([a, b]).on(9).dense(), two.astype(int) @ one.astype(int) > 0)
    assert reach([Window(2)] * 4) == Window(2).reach(4)
    assert reach([]) == er.Identity()
    assert reach([PerHead([er.Offset(-1), er.Offset(-2)])]).on(5) == Window(2).on(5)
    for bad in ("Causal()", 3, [Causal(), 1]):
        with pytest.raises(ParameterError, match="reach"):
            reach(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_the_audit_measures_the_same_relations_and_reach(pattern):
    ids = torch.randint(0, 7, (2, 12))
    for layers in (1, 2):
        torch.manual_seed(0)
        model = SparseTransformer(config(pattern=pattern, layers=layers)).eval()
        report = er.audit.audit(model, ids, variants=False)
        assert len(report.calls) == layers
        for call in report.calls:
            assert call.measured.kernel.items[0] == model.relation.on(12)
        assert report.flow is not None
        assert report.flow.flow.relations[0] == reach([model.relation] * layers).on(12)
        assert (report.flow.relation == Causal()) == (layers == 2)


@pytest.mark.parametrize("pattern", ["strided", "fixed"])
def test_generation_with_a_cache_is_token_exact(pattern):
    torch.manual_seed(1)
    model = SparseTransformer(config(pattern=pattern, heads=4)).double().eval()
    ids = torch.randint(0, 7, (2, 3))
    made = model.generate(ids, 8)
    again = ids
    for _ in range(8):
        again = torch.cat([again, model(again)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(made, again)


def test_it_learns_to_copy_from_a_distance():
    """The token 9 positions before: beyond the window of 3, on the stride of the other head."""
    torch.manual_seed(0)
    model = SparseTransformer(config(context=24, layers=1, width=32, vocab_size=5))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        ids = torch.randint(0, 5, (32, 24))
        loss = torch.nn.functional.cross_entropy(model(ids)[:, 9:].flatten(0, 1), ids[:, :-9].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(0, 5, (64, 24))
    right = (model(ids)[:, 9:].argmax(-1) == ids[:, :-9]).float().mean().item()
    assert right > 0.9


def test_save_and_load(tmp_path):
    model = SparseTransformer(config(pattern="fixed", stride=4, summaries=2)).eval()
    model.save(tmp_path / "sparse.safetensors")
    again = SparseTransformer.load(tmp_path / "sparse.safetensors").eval()
    assert again.relation == model.relation
    assert torch.equal(again(torch.arange(6)), model(torch.arange(6)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "an even number"),
        ({"heads": 0}, r"heads\) must be an integer >= 1"),
        ({"pattern": "dense"}, '"strided" or "fixed", got \'dense\''),
        ({"stride": 0}, r"stride\) must be an integer >= 1"),
        ({"pattern": "fixed", "summaries": 4}, "a block of 3 positions has no 4 last ones"),
    ],
)
def test_bad_configurations_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        config(**changes)
