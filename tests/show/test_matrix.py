"""Drawings as text say what the matrix says, and never exceed the width."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erlangen.relations import Causal, Empty, Full, Identity, Neighborhoods, Window
from erlangen.show.matrix import ASCII, UNICODE, charset, draw

masks = st.integers(1, 32).flatmap(
    lambda width: st.lists(st.tuples(*[st.booleans()] * width), min_size=1, max_size=32)
)


@given(masks)
def test_every_pair_has_its_mark_while_it_fits(mask):
    bound = Neighborhoods.from_dense(mask)
    rows = draw(bound).splitlines()[-bound.queries :]
    read = [[mark == UNICODE.read for mark in row[5:].split()] for row in rows]
    assert read == bound.dense().tolist()
    assert [int(row[:3]) for row in rows] == list(range(bound.queries))


@given(st.integers(33, 78), st.integers(0, 30))
def test_half_blocks_hold_two_queries(n, lookback):
    bound = Window(lookback=lookback).on(n)
    rule, *rows, _, _ = draw(bound, width=80).splitlines()
    pixels = []
    for row in rows:
        pixels.append([mark in "▀█" for mark in row[1:-1]])
        pixels.append([mark in "▄█" for mark in row[1:-1]])
    assert pixels[:n] == bound.dense().tolist()
    assert rule == "+" + "-" * n + "+"


@pytest.mark.parametrize("width", [20, 80, 200])
@pytest.mark.parametrize("shape", [(1000, 1000), (3, 5000), (5000, 3), (100, 100), (40, 70)])
def test_larger_matrices_fit_and_say_their_scale(width, shape):
    *drawing, legend = draw(Full().on(*shape), width=width).splitlines()
    assert all(len(line) <= width for line in drawing)
    assert len(drawing) <= 42
    assert legend.startswith("one character = ")


def test_shades_tell_none_from_some_and_all_from_most():
    assert set("".join(line[1:-1] for line in draw(Empty().on(1000)).splitlines()[1:-2])) == {" "}
    assert set("".join(line[1:-1] for line in draw(Full().on(1000)).splitlines()[1:-2])) == {"█"}
    diagonal = draw(Identity().on(1000)).splitlines()[1:-2]
    assert all("░" in line for line in diagonal)
    almost = draw(Full().on(1000) - Identity().on(1000)).splitlines()[1:-2]
    assert all("▓" in line for line in almost)


def test_ascii_streams_get_ascii():
    assert charset("latin-1") is ASCII
    assert charset("no such encoding") is ASCII
    for n in (5, 60, 500):
        assert draw(Causal().on(n), characters=ASCII).isascii()


def test_nothing_to_draw_is_said():
    assert "no pairs" in draw(Full().on(0))
