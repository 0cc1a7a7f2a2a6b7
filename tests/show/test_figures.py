"""Pictures: what is drawn agrees with the relation, and files are written as asked."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Circle, FancyArrowPatch

from erlangen.errors import SizeError
from erlangen.relations import (
    Batch,
    Bipartite,
    Causal,
    Empty,
    Full,
    Graph,
    Grid,
    Identity,
    Padding,
    PerHead,
    Random,
    Window,
)
from erlangen.show.affordable import bind_all
from erlangen.show.figures import MOST_PANELS, figure, save
from erlangen.show.graph import draw_graph
from erlangen.show.layout import arrange


def _graph(relation, *sizes):
    axes = Figure().subplots()
    draw_graph(axes, relation, relation.on(*sizes))
    return axes


def _arrows(axes):
    return [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]


@pytest.mark.parametrize(
    ("relation", "n", "kind"),
    [
        (Full(), 5, "circle"),
        (Identity(), 5, "circle"),
        (Empty(), 5, "circle"),
        (Causal(), 5, "line"),
        (Causal().T, 5, "line"),
        (Window(lookback=2) - Identity(), 5, "line"),
        (Window(1, 1), 5, "circle"),
        (Bipartite(2, 3), 5, "sides"),
        (Bipartite(2, 3).T, 5, "sides"),
        (Graph([(0, 1)]), 5, "line"),
        (Grid((2, 3), 1), 6, "grid"),
    ],
)
def test_the_layout_shows_the_structure(relation, n, kind):
    layout = arrange(relation, relation.on(n))
    assert layout.kind == kind
    assert layout.joint
    assert len(set(layout.keys)) == n


def test_keys_and_queries_of_different_number_stand_apart():
    layout = arrange(Causal(), Causal().on(2, 5))
    assert (layout.kind, layout.joint) == ("sides", False)
    assert {x for x, _ in layout.keys}.isdisjoint({x for x, _ in layout.queries})


@pytest.mark.parametrize(
    ("relation", "sizes", "arrows"),
    [
        (Causal(), (6,), 21),
        (Full(), (6,), 15 + 6),  # a pair that reads both ways is one arrow with two heads
        (Bipartite(3, 4), (7,), 12),
        (Empty(), (4,), 0),
        (Causal(), (2, 5), 9),
        (Grid((3, 3), 2), (9,), 36 + 9),
    ],
)
def test_there_is_an_arrow_for_every_edge(relation, sizes, arrows):
    assert len(_arrows(_graph(relation, *sizes))) == arrows


def test_arrows_run_from_the_key_to_the_query():
    axes = _graph(Graph([(2, 0)], nodes=3), 3)
    (arrow,) = _arrows(axes)
    places = [patch.center for patch in axes.patches if isinstance(patch, Circle)]
    vertices = arrow.get_path().vertices
    start, end = vertices[0], vertices[-2]  # the last one only closes the arrow head
    nearest = [int(np.argmin([np.hypot(*(point - place)) for place in places])) for point in (start, end)]
    assert nearest == [0, 2]


def test_queries_that_read_nothing_are_dashed():
    nodes = [patch for patch in _graph(Bipartite(2, 3), 5).patches if isinstance(patch, Circle)]
    assert [node.get_linestyle() for node in nodes] == ["--", "--", "-", "-", "-"]


def test_larger_graphs_say_what_they_show():
    assert _graph(Full(), 100).get_title().startswith("graph: 4,000 of 9,900 edges")
    assert _graph(Window(2), 100).get_title().startswith("graph: 197 edges")
    assert _graph(Causal(), 1000).get_title() == "degrees"


def test_degrees_are_plotted_exactly():
    bound = (Causal() | Random(3, seed=0)).on(900)
    axes = _graph(Causal() | Random(3, seed=0), 900)
    read, readers = (line.get_ydata() for line in axes.get_lines())
    np.testing.assert_array_equal(read, bound.degrees)
    np.testing.assert_array_equal(readers, bound.T.degrees)


def test_the_matrix_has_the_colours_of_the_relation():
    drawn = figure(bind_all(Causal(), 5, None))
    image = drawn.axes[0].get_images()[0].get_array()
    unread = image[0, 4]
    np.testing.assert_array_equal((np.abs(image - unread) > 1e-9).any(axis=2), Causal().on(5).dense())


def test_a_single_pair_of_a_large_matrix_is_seen():
    drawn = figure(bind_all(Graph([(1500, 20)]), 3000, None))
    tint = drawn.axes[0].get_images()[0].get_array()
    assert (tint > 0).sum() == 1
    assert tint.max() > 0.2


def test_families_have_panels_and_say_what_is_left_out():
    assert len(figure(bind_all(PerHead([Causal(), Full()]), 4, None)).axes) == 4
    assert len(figure(bind_all(Batch([Padding(k) for k in range(1, 8)]), 8, None)).axes) == 9
    many = figure(bind_all(PerHead([Causal()] * (MOST_PANELS + 1)), 3, None))
    assert f"the first {MOST_PANELS} of {MOST_PANELS + 1}" in many.get_suptitle()


def test_files_are_written_and_repeat_exactly(tmp_path):
    bound = bind_all(Causal(), 5, None)
    paths = [tmp_path / name for name in ("a.png", "a.svg", "b.PNG", "b.SVG")]
    save(bound, paths[:2])
    save(bound, paths[2:])
    assert imread(paths[0]).shape[2] == 4
    assert b"<svg" in paths[1].read_bytes()
    assert paths[0].read_bytes() == paths[2].read_bytes()
    assert paths[1].read_bytes() == paths[3].read_bytes()


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 5000), (3000, 2), (25, 25), (161, 161)])
def test_every_size_can_be_drawn(tmp_path, queries, keys):
    save(bind_all(Full(), queries, keys), [tmp_path / "out.png"])
    assert (tmp_path / "out.png").stat().st_size > 0


def test_no_pairs_cannot_be_drawn():
    with pytest.raises(SizeError, match="no pairs to draw"):
        figure(bind_all(Full(), 0, None))
