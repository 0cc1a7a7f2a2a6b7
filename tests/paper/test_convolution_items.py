"""The statements on convolution and kernels fail when what they are about is broken."""

from __future__ import annotations

import pytest
import torch

import erlangen.nn.convolution
import erlangen.nn.paper
import erlangen.paper.theorems.convolution_items as items
from erlangen.attention import attend, kernels
from erlangen.attention.binding import clear_cache
from erlangen.paper.theorems import run
from erlangen.relations import Full, Neighborhoods, Offset, Ring
from erlangen.symmetry import symmetry

IS = "Convolution is attention"
CONVERSE = "Attention that is convolution"
ONE = "One softmax head is no convolution"
MOVES = "Convolution and translations"
KERNELS = "Proposition 1 for kernels"


@pytest.fixture(autouse=True)
def fresh_bindings():
    yield
    clear_cache()


def fails(names):
    return {name for name in names if not run(name)[0].verified}


def doubled(*arguments, **options):
    out = attend(*arguments, **options)
    return tuple(2 * part for part in out) if isinstance(out, tuple) else 2 * out


def filled(q, k, v, relation=None, **options):
    """Empty rows read everything, as under a fill of -1e9."""
    out = attend(q, k, v, relation, **options)
    mean = v.mean(dim=-2, keepdim=True).expand(*v.shape[:-2], out.shape[-2], v.shape[-1])
    return torch.where((out == 0).all(-1, keepdim=True), mean, out)


@pytest.mark.parametrize(("broken", "names"), [(doubled, {IS, ONE, MOVES}), (filled, {IS})])
def test_a_broken_attention_in_the_convolution_layer(monkeypatch, broken, names):
    monkeypatch.setattr(erlangen.nn.convolution, "attend", broken)
    # A shift by one place around is no symmetry of a wrong layer either: `MOVES` needs the other layers too.
    monkeypatch.setattr(items, "attend", broken)
    assert fails(names) == names


def test_values_summed_instead_of_averaged(monkeypatch):
    monkeypatch.setattr(erlangen.nn.paper, "attend", doubled)
    assert fails({CONVERSE, ONE}) == {CONVERSE, ONE}


def test_weights_that_ignore_their_scores_are_linear(monkeypatch):
    monkeypatch.setattr(erlangen.nn.paper, "attend", lambda q, k, v, r=None, **o: attend(0 * q, k, v, r, **o))
    assert fails({CONVERSE}) == {CONVERSE}


def off_by_one(self, site):
    keys = site.positions + self.by + 1
    return Neighborhoods.from_bands(site.keys, keys, keys + 1)


def two_keys(self, site):
    keys = site.positions + self.by
    return Neighborhoods.from_bands(site.keys, keys, keys + 2)


@pytest.mark.parametrize("bind", [off_by_one, two_keys])
def test_a_broken_offset(monkeypatch, bind):
    monkeypatch.setattr(Offset, "_bind", bind)
    assert fails({IS, CONVERSE, ONE, MOVES}) == {IS, CONVERSE, ONE, MOVES}


def test_a_ring_that_is_not_closed(monkeypatch):
    def open_ring(self, site):
        return Neighborhoods.from_bands(
            site.keys, site.positions - self.lookback, site.positions + self.lookahead + 1
        )

    monkeypatch.setattr(Ring, "_bind", open_ring)
    assert fails({MOVES}) == {MOVES}


def test_a_wrong_symmetry(monkeypatch):
    monkeypatch.setattr(items, "symmetry", lambda relation, n: symmetry(Full(), n))
    assert fails({MOVES}) == {MOVES}


def test_a_lax_criterion_for_one_head(monkeypatch):
    real = items._one_head

    def lax(kernel):
        return real([[abs(entry) for entry in tap] for tap in kernel])

    monkeypatch.setattr(items, "_one_head", lax)
    assert fails({ONE}) == {ONE}


@pytest.mark.parametrize(
    ("kernel", "given", "possible"),
    [
        ([[1], [-1]], None, False),
        ([[1], [0]], None, False),
        ([[-1], [-3]], [-4], True),  # positive multiples of a negative number
        ([[1, 2], [2, 4]], [3, 6], True),
        ([[1, 2], [2, 5]], None, False),
    ],
)
def test_which_filters_are_one_head(kernel, given, possible):
    found = items._one_head(kernel)
    assert (found is not None) == possible
    if found is not None:
        shares, matrix = found
        assert matrix == given
        assert sum(shares) == 1
        for tap, share in zip(kernel, shares, strict=True):
            assert tap == [share * entry for entry in matrix]


def test_a_kernel_that_lies_about_its_sign(monkeypatch):
    monkeypatch.setattr(kernels, "Gaussian", lambda bandwidth: kernels.Polynomial(3))
    assert fails({KERNELS}) == {KERNELS}


def test_a_signed_kernel_made_positive(monkeypatch):
    monkeypatch.setattr(kernels.Polynomial, "weight", lambda self, q, k: (q * k).sum(-1) ** 2)
    monkeypatch.setattr(kernels.Polynomial, "matrix", lambda self, q, k: (q @ k.mT) ** 2)
    assert fails({KERNELS}) == {KERNELS}


def test_a_sink_that_takes_nothing(monkeypatch):
    real = kernels.SoftmaxDot
    monkeypatch.setattr(kernels, "SoftmaxDot", lambda **options: real())
    assert fails({KERNELS}) == {KERNELS}
