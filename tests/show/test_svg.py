"""Matrices on pages: the rectangles and pixels are those of the dense masks."""

import re
from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from erlangen.relations import Causal, Graph, Neighborhoods
from erlangen.show.palette import BLUE, ORANGE, PEACH, UNREAD
from erlangen.show.svg import CELLS, picture

shapes = st.tuples(st.integers(1, 9), st.integers(1, 9))
seeds = st.integers(0, 10**6)


def filled(drawn, name):
    """The cells that the rectangles of one class cover."""
    cells = np.zeros((drawn.queries, drawn.keys), bool)
    [path] = re.findall(rf'<path d="([^"]*)" class="{name}"/>', drawn.svg(100)) or [""]
    for j, i, width in re.findall(r"M(\d+) (\d+)h(\d+)v1", path):
        cells[int(i), int(j) : int(j) + int(width)] = True
    return cells


@given(shapes, seeds)
def test_rectangles_cover_what_is_read_extra_and_missing(shape, seed):
    random = np.random.default_rng(seed)
    read, wanted = random.random((2, *shape)) < 0.5
    real = random.random(shape[0]) < 0.7
    judged = real[:, None]
    drawn = picture(Neighborhoods.from_dense(read), Neighborhoods.from_dense(wanted), real=real)
    extra, missing = read & ~wanted & judged, wanted & ~read & judged
    parts = {
        "read": read & ~extra,
        "extra": extra,
        "missing": missing,
        "padding": np.broadcast_to(~judged, shape),
    }
    for name, cells in parts.items():
        assert (filled(drawn, name) == cells).all(), name
    assert drawn.counts == tuple(int(parts[name].sum()) for name in ("read", "extra", "missing"))


@pytest.mark.parametrize("n", [CELLS + 1, 3 * CELLS])
def test_one_wrong_pair_of_a_large_matrix_is_seen_at_its_place(n):
    read = (Causal() - Graph([(n - 1, 0)]) | Graph([(0, n - 1)])).on(n)
    drawn = picture(read, Causal().on(n), edge=(0, n - 1))
    pixels = imread(BytesIO(b64decode(re.findall(r'base64,([^"]*)"', drawn.svg(100))[0])))[..., :3]
    block = -(-n // (2 * CELLS))
    assert pixels.shape[:2] == (-(-n // block),) * 2
    assert f'width="{pixels.shape[1] * block}"' in drawn.image
    for place, color in (((0, -1), ORANGE), ((-1, 0), PEACH), ((-2, 3), BLUE), ((3, -2), UNREAD)):
        assert np.allclose(pixels[place], to_rgb(color), atol=1 / 255), place
    assert f'<circle cx="{n - 0.5}" cy="0.5"' in drawn.svg(100)


def test_a_matrix_without_pairs_has_no_rectangles():
    for bound in (Neighborhoods.from_dense(np.zeros((2, 3), bool)), Causal().on(0)):
        drawn = picture(bound)
        assert re.findall('class="(read|extra|missing|padding)"', drawn.svg(100)) == []
        assert drawn.counts == (0, 0, 0)
