"""The group of the row-normalised weights against trying every permutation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from erlangen.errors import ParameterError, SizeError
from erlangen.relations import (
    ALiBi,
    Batch,
    Causal,
    Decay,
    Distance,
    Documents,
    FromMask,
    Full,
    Graph,
    Identity,
    PerHead,
    Prefix,
    RelativeBias,
    Ring,
    Weighted,
    Window,
)
from erlangen.symmetry import stack_symmetry, symmetry
from erlangen.symmetry.structures import structure, weight_classes
from symmetry_brute import every_permutation, same_group

CUBE = [(a, a ^ (1 << b)) for a in range(8) for b in range(3)]


def keeps_weights(weights: np.ndarray) -> np.ndarray:
    """The permutations that keep every row-normalised matrix (heads, n, n) of non-negative Fractions."""
    n = weights.shape[-1]
    total = weights.sum(axis=-1, keepdims=True)
    share = np.where(total == 0, 0, weights / np.where(total == 0, 1, total))
    images = every_permutation(n)
    kept = [(share[:, image][:, :, image] == share).all() for image in images]
    return images[np.array(kept, bool)]


def powers_of_two(log_weights: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """2 ** b where read, else 0, as fractions: log-weights in units of log 2 are exact."""
    flat = [
        Fraction(2) ** int(b) if m else Fraction(0)
        for b, m in zip(log_weights.ravel(), np.broadcast_to(mask, log_weights.shape).ravel(), strict=True)
    ]
    result = np.empty(len(flat), object)
    result[:] = flat
    return result.reshape(log_weights.shape)


def square(n: int, heads: int = 2):
    return st.tuples(
        arrays(np.int64, (heads, n, n), elements=st.integers(0, 2)),
        arrays(bool, (n, n), elements=st.sampled_from([True, True, False])),
    )


@settings(max_examples=120, deadline=None)
@given(st.integers(1, 5).flatmap(square))
def test_random_weights(drawn):
    bias, mask = drawn
    same_group(symmetry(Weighted(FromMask(mask), bias)), keeps_weights(powers_of_two(bias, mask)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(
            square(n, 1), arrays(np.int64, (n, 1), elements=st.integers(-4, 4)), st.permutations(range(n))
        )
    )
)
def test_scaling_rows_and_renaming_points_change_nothing(drawn):
    """The gauge: b_ij + c_i has the same group. And weights made symmetric have the symmetry."""
    (bias, mask), gauge, image = drawn
    image = np.array(image)
    # Close mask and bias under a permutation, so that there is a symmetry to lose.
    for _ in range(6):
        mask = mask | mask[np.ix_(image, image)]
        bias = np.maximum(bias, bias[:, image][:, :, image])
    group = symmetry(Weighted(FromMask(mask), bias))
    same_group(group, keeps_weights(powers_of_two(bias, mask)))
    assert group.contains(image)
    scaled = symmetry(Weighted(FromMask(mask), bias + gauge))
    same_group(scaled, keeps_weights(powers_of_two(bias, mask)))
    floats = symmetry(Weighted(FromMask(mask), 0.1 * bias + np.pi * gauge))
    same_group(floats, keeps_weights(powers_of_two(bias, mask)))


@pytest.mark.parametrize("n", range(1, 7))
@pytest.mark.parametrize(
    "weighted",
    [
        ALiBi(1),
        ALiBi(1, relation=Full()),
        ALiBi(-2, relation=Full()),
        ALiBi(1, relation=Window(1, 1)),
        ALiBi(1, relation=Window(2, 2)),
        ALiBi(1, relation=Prefix(3)),
        ALiBi(0, relation=Full()),
        ALiBi(0, relation=Ring(1, 1)),
        ALiBi([1, 2], relation=Ring(1, 1)),
        Weighted(Full(), offsets={0: 1}),
        Weighted(Full(), offsets={0: 1, -1: 2, 1: 2}),
        Weighted(Full(), offsets={1: 1}),
        RelativeBias([0, 1, 2, 2, 0, 1, 2, 2], max_distance=4),
        RelativeBias([0, 1, 2, 2, 0, 2, 2, 2], max_distance=4),
    ],
    ids=str,
)
def test_structured_weights(weighted, n):
    bound = weighted.on(n)
    mask = bound.neighborhoods.dense()
    bias = np.where(mask, np.where(np.isfinite(bound.dense()), bound.dense(), 0), 0)
    same_group(symmetry(weighted, n), keeps_weights(powers_of_two(bias, mask)))


def test_names_and_evidence():
    assert repr(symmetry(ALiBi([0.5, 0.25]), 10**6)) == "<Group 1, order 1; degree 1000000; symbolic>"
    assert repr(symmetry(ALiBi(0.5, relation=Full()), 9)) == "<Group Z2, order 2; degree 9; symbolic>"
    assert repr(symmetry(Decay(0.9, relation=Full()), 2)) == "<Group S2, order 2; degree 2; symbolic>"
    assert repr(symmetry(Decay(1, relation=Full()), 4)) == "<Group S4, order 24; degree 4; exact at n>"
    # Weights can break: a ring with unequal sides keeps its rotations only.
    sides = Weighted(Ring(1, 1), circular := _ring_bias(7, {0: 0, 1: 1, -1: 1}))
    assert symmetry(sides, 7).name == "D7"
    assert symmetry(Weighted(Ring(1, 1), _ring_bias(7, {0: 0, 1: 1, -1: 2})), 7).name == "C7"
    assert circular.shape == (7, 7)
    # Distances of a cube have the 48 symmetries of the cube; with all distances alike, everything.
    cube = Graph(CUBE, nodes=8)
    assert symmetry(Distance(cube, [0, -1, -2, -3])).order == 48
    assert symmetry(Distance(cube, [0, -1, -1])).order == 40320
    assert symmetry(Distance(cube, [0, -1, -2, -1])).order == 1152  # distances 1 and 3 alike: S4 wr S2


def _ring_bias(n: int, by_offset: dict[int, float]) -> np.ndarray:
    i, j = np.indices((n, n))
    return sum(value * ((j - i) % n == offset % n) for offset, value in by_offset.items())


def test_heads_are_kept_at_once():
    ring, line = _ring_bias(6, {1: 1, -1: 1}), -np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    assert symmetry(Weighted(Full(), ring)).name == "D6"
    assert symmetry(Weighted(Full(), line)).order == 2
    both = symmetry(Weighted(Full(), np.stack([ring, line])))
    assert both.order == 2
    assert both.contains([5, 4, 3, 2, 1, 0])
    assert not both.contains([1, 2, 3, 4, 5, 0])
    rotation = Weighted(Full(), np.stack([ring, np.diag(np.arange(6))]))
    assert symmetry(rotation).trivial
    # One support per head, each with its own row of the bias.
    apart = ALiBi([1, 0], relation=PerHead([Full(), Identity()]))
    assert symmetry(apart, 5).order == 2
    assert symmetry(ALiBi([1, 0], relation=PerHead([Identity(), Full()])), 5).order == 120
    assert symmetry(ALiBi(1, relation=PerHead([Identity(), Full()])), 5).order == 2


def test_stacks_and_queries_apart():
    assert stack_symmetry([Ring(1, 1), ALiBi(1, relation=Full())], 6).order == 2
    assert stack_symmetry([Full(), ALiBi(1)], 6).trivial
    bias = [[0, 1, 0], [5, 6, 5]]  # the second row is the first, scaled
    assert symmetry(Weighted(Full(), bias), joint=False).order == 4
    assert symmetry(Weighted(Full(), [[0, 1, 0], [5, 7, 5]]), joint=False).order == 2


def test_floats_are_exact_until_rounding_shows():
    exact = Weighted(Full(), [[0.5, 0.25], [0.25, 0.5]])
    assert symmetry(exact).evidence == "exact at n"
    assert symmetry(exact).order == 2
    rounded = Weighted(Full(), [[0.3, 0.1], [0.0, 0.2]])  # 0.3 - 0.1 and 0.2 - 0.0 differ by rounding
    group = symmetry(rounded)
    assert group.evidence == "numeric"
    assert group.order == 2
    assert group.exact
    apart = Weighted(Full(), [[0.3, 0.1], [0.0, 0.2 + 1e-6]])
    assert symmetry(apart).order == 1
    assert symmetry(apart).evidence == "exact at n"
    third = Weighted(Full(), [[Fraction(1, 3), 0], [1, Fraction(4, 3)]])
    assert symmetry(third).evidence == "exact at n"
    assert symmetry(third).order == 2
    single = Weighted(Full(), np.array([[0.3, 0.1], [0.0, 0.2]], np.float32))
    assert symmetry(single).evidence == "numeric"
    assert symmetry(single).order == 2


def test_the_exact_difference_is_exact():
    """Two floats whose rounded differences agree and whose exact ones do not are told apart, and reported."""
    big, small = 1e16, 1.0
    classes, rounded = weight_classes(np.array([big, small, big, 2 * small]), np.array([2, 2]))
    assert rounded
    assert classes.tolist() == [1, 0, 1, 0]


def test_the_command():
    from typer.testing import CliRunner

    from erlangen.cli import app

    told = CliRunner().invoke(app, ["symmetry", "ALiBi([0.5, 0.25], relation=Full())", "--n", "5"]).stdout
    assert "symmetry: Z2, order 2 (symbolic)" in told
    assert "(0 4)(1 3)" in told


def test_sizes():
    assert symmetry(ALiBi(1, relation=Documents([2, 2]))).degree == 4
    with pytest.raises(SizeError, match="no size of its own"):
        symmetry(ALiBi(1))
    with pytest.raises(ParameterError, match="batch item"):
        symmetry(ALiBi(1, relation=Batch([Causal()])), 3)
    with pytest.raises(ParameterError, match="2 biases for 3 heads"):
        symmetry(ALiBi([1, 2], relation=PerHead([Full()] * 3)), 3)


def test_too_many_edges_is_a_lower_bound():
    weighted = RelativeBias([0, 1, 2, 3])
    group = symmetry(weighted, 4000)
    assert group.evidence == "at least"
    assert group.order == 1
    assert group.trivial is None
    with pytest.raises(SizeError, match="too many"):
        symmetry(weighted, 4000, joint=False)


def test_the_relations_are_the_weights():
    weighted = Weighted(Causal(), [[0, 0, 0], [1, 2, 0], [3, 3, 4]])
    told = structure(weighted, 3, 3)
    code = sum(layer.dense().astype(int) << bit for bit, layer in enumerate(told.relations))
    assert code[0, 0] == code[1, 1] == code[2, 2]
    assert code[1, 0] == code[2, 0] == code[2, 1]
    assert len({code[0, 0], code[1, 0], code[0, 1]}) == 3
    assert code[0, 1] == 0
