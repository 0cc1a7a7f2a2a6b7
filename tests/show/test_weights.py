"""Weighted relations drawn: the shades are the weights, in the terminal and in pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from erlangen.cli import app
from erlangen.errors import ParameterError, SizeError
from erlangen.relations import ALiBi, Batch, Causal, Decay, Full, Graph, Padding, RelativeBias, Weighted
from erlangen.show.affordable import bind_all
from erlangen.show.density import shares
from erlangen.show.figures import figure, save
from erlangen.show.matrix import ASCII, UNICODE, draw
from erlangen.show.summary import extent, header


def run(*arguments):
    return CliRunner().invoke(app, ["show", *arguments], prog_name="erlangen")


def draw_weights(bound, head=0, characters=UNICODE, width=80):
    return draw(bound.neighborhoods, width, characters, shares(bound, head))


def test_shades_are_weights():
    """Every mark stands for the quarter its weight lies in."""
    weighted = Weighted(Causal(), np.log([[1, 1, 1], [0.2, 1, 1], [0.4, 0.7, 1]]))
    lines = draw_weights(weighted.on(3), characters=ASCII).splitlines()
    assert lines[2:5] == ["  0  # . .", "  1  . # .", "  2  : + #"]
    assert "under 1/4" in lines[5]
    head = Weighted(Full(), np.stack([np.zeros((2, 2)), [[0, 9], [9, 0]]])).on(2)
    assert draw_weights(head, 0) != draw_weights(head, 1)
    assert np.allclose(shares(head, 1), [[np.exp(-9), 1], [1, np.exp(-9)]])


def test_a_row_scaled_is_drawn_alike():
    bias = np.array([[0.0, 1.0], [2.0, 0.5]])
    scaled = Weighted(Full(), bias + np.array([[7.0], [-3.0]]))
    assert draw_weights(Weighted(Full(), bias).on(2)) == draw_weights(scaled.on(2))


def test_large_and_empty_ones_are_drawn_as_relations():
    for weighted in (ALiBi(1).on(100), ALiBi(1).on(0), Weighted(Graph([], nodes=3), edges=[]).on(3)):
        assert draw_weights(weighted) == draw(weighted.neighborhoods)
    assert "·" in draw_weights(ALiBi(1).on(40), width=200) or "█" in draw_weights(ALiBi(1).on(40), width=200)


def test_the_header_tells_the_range():
    weighted = ALiBi([1, 2])
    assert extent(weighted.on(4)) == [(-3.0, 0.0), (-6.0, 0.0)]
    assert header(weighted, weighted.on(4)).endswith(
        "weights: Toeplitz, 2 heads, log-weights -3 to 0, -6 to 0"
    )
    matrix = Weighted(Full(), [[1, 2], [3, 4]])
    assert "per edge, 1 head" in header(matrix, matrix.on(2))


def test_the_command():
    result = run("Decay(rate=0.7)", "--n", "3")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-4:-1] == ["  0  █ · ·", "  1  ▓ █ ·", "  2  ▒ ▓ █"]
    told = json.loads(run("ALiBi([1, 2]) & Window(1)", "--n", "3", "--json").stdout)
    assert told["support"] == "Window(lookback=1)"
    assert told["edges"] == 5
    assert told["weights"] == {"heads": 2, "form": "Toeplitz", "log_weights": [[-1, 0], [-2, 0]]}
    assert json.loads(run("Weighted(Full(), [[0, 1], [2, 3]])", "--json").stdout)["queries"] == 2
    assert "has no size of its own" in run("ALiBi(1)").stderr


def test_the_command_draws_a_picture(tmp_path):
    result = run("ALiBi([0.5, 0.25], relation=Full())", "--n", "8", "--out", str(tmp_path / "a.png"))
    assert result.exit_code == 0
    assert imread(tmp_path / "a.png").std() > 0.05


def test_pictures(tmp_path):
    weighted = RelativeBias(np.arange(16.0).reshape(2, 8), max_distance=9)
    drawn = figure([("", weighted, weighted.on(12))], "T5")
    assert [axes.get_title() for axes in drawn.axes] == ["head 0", "head 1", "log-weight by j - i"]
    image = drawn.axes[0].images[0].get_array()
    assert np.allclose(image, 0.2 + 0.8 * shares(weighted.on(12), 0))
    line = drawn.axes[2].lines[1].get_ydata()
    assert np.allclose(line, weighted.toeplitz(12, 12)[1])
    twice = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in twice:
        save([("", weighted, weighted.on(12))], [path])
    assert twice[0].read_bytes() == twice[1].read_bytes()
    many = ALiBi(list(range(20)))
    assert "the first 8 of 20 heads" in figure([("", many, many.on(4))]).get_suptitle()
    long = figure([("", ALiBi(1), ALiBi(1).on(2000))])
    assert [axes.get_title() for axes in long.axes] == ["log-weight by j - i"]


def test_refusals():
    with pytest.raises(ParameterError, match="several relations"):
        bind_all(ALiBi(1, relation=Batch([Padding(2)])), 3, None)
    with pytest.raises(SizeError, match="--n N"):
        bind_all(Decay(0.5), None, None)
    with pytest.raises(SizeError, match="no pairs"):
        figure([("", ALiBi(1), ALiBi(1).on(0))])
    large = Weighted(Full(), np.zeros((600, 600)))
    with pytest.raises(SizeError, match="too large"):
        figure([("", large, large.on(600))])
    with pytest.raises(SizeError, match="choose smaller sizes"):
        bind_all(Weighted(Full(), np.zeros((1, 3000, 3000), np.float32)), 3000, None)
