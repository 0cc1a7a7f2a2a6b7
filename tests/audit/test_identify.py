"""Names are given only to what they equal exactly."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import erlangen as er
from erlangen.audit.identify import describe, identify
from erlangen.audit.support import Support
from erlangen.audit.wording import words
from erlangen.relations import Neighborhoods
from erlangen.relations.parse import parse

N = 12
KNOWN = [
    er.Full(),
    er.Empty(),
    er.Identity(),
    er.Causal(),
    er.Causal().T,
    er.Window(lookback=3),
    er.Window(lookback=2, lookahead=1),
    er.Window(lookback=0, lookahead=4),
    er.Prefix(4),
    er.Blocks(4),
    er.Documents([3, 4, 5]),
    er.Causal() & er.Blocks(4),
    er.Causal() & er.Documents([3, 4, 5]),
    er.Window(lookback=2) & er.Documents([5, 7]),
    er.Dilated(3),
    er.Causal() & er.Dilated(2),
    er.Ring(1, 2),
    er.Padding(7),
    er.Padding(7, side="left"),
    er.Causal() & er.Padding(7),
    er.Window(lookback=2) & er.Padding(7),
    er.Global(keys=[0], queries=[0]),
    er.Window(lookback=2, lookahead=2) | er.Global(keys=[0, 5], queries=[0, 5]),
    er.Window(lookback=2) | er.Causal() & er.Global(keys=[0, 1]),
    er.Offset(-3),
    er.Offset(2),
    er.Causal() & ~er.Identity(),
    ~er.Identity(),
]


@pytest.mark.parametrize("relation", KNOWN, ids=str)
def test_known_relations_get_their_names(relation):
    found = identify(relation.on(N))
    assert found.on(N) == relation.on(N)
    assert not isinstance(found, er.Graph | er.FromMask)
    assert len(str(found)) <= len(str(relation))


def test_between_two_sequences():
    assert identify(er.Full().on(3, 5)) == er.Full()
    assert identify(er.Padding(4).on(3, 5)) == er.Padding(4)
    assert identify(er.Causal().on(2, 6)) == er.Causal()
    top_left = Neighborhoods.from_dense(np.tril(np.ones((2, 6), bool)))
    assert isinstance(identify(top_left), er.FromMask)


@settings(max_examples=200, deadline=None)
@given(q=st.integers(1, 6), k=st.integers(1, 6), data=st.data())
def test_every_name_is_exact(q, k, data):
    dense = np.array(data.draw(st.lists(st.booleans(), min_size=q * k, max_size=q * k))).reshape(q, k)
    bound = Neighborhoods.from_dense(dense)
    assert identify(bound).on(q, k) == bound


@settings(max_examples=100, deadline=None)
@given(relation=st.sampled_from(KNOWN), i=st.integers(0, N - 1), j=st.integers(0, N - 1))
def test_one_edge_off_is_another_name(relation, i, j):
    dense = relation.on(N).dense()
    dense[i, j] ^= True
    found = identify(Neighborhoods.from_dense(dense))
    assert np.array_equal(found.on(N).dense(), dense)
    assert found != relation


def test_rows_that_do_not_count():
    dense = er.Causal().on(4).dense()
    dense[3] = True
    dense[3, 1] = False
    assert identify(Neighborhoods.from_dense(dense), np.array([0, 1, 2])) == er.Causal()


def test_heads_and_items():
    causal, full = er.Causal().on(4), er.Full().on(4)
    assert describe(Support(((causal, causal), (causal, causal)))) == er.Causal()
    assert describe(Support(((causal, full), (causal, full)))) == er.PerHead([er.Causal(), er.Full()])
    assert describe(Support(((causal,), (full,)))) == er.Batch([er.Causal(), er.Full()])


# ----------------------------------------------------------------------------------------------- in words


def changed(relation, n, *edges):
    dense = relation.on(n).dense()
    for i, j in edges:
        dense[i, j] ^= True
    return Neighborhoods.from_dense(dense)


@pytest.mark.parametrize(
    ("relation", "n", "edges", "told"),
    [
        (er.Causal(), 16, [(2, 5)], "Causal() and one edge more, (2, 5)"),
        (er.Causal(), 16, [(0, 4), (1, 5), (2, 9)], "Causal() and 3 edges more, first (0, 4)"),
        (er.Window(3), 16, [(7, 4)], "Window(lookback=3) without the edge (7, 4)"),
        (er.Window(3), 24, [(7, 4), (9, 8)], "Window(lookback=3) without 2 edges, first (7, 4)"),
        (er.Window(189), 512, [(300, 200)], "Window(lookback=189) without the edge (300, 200)"),
        (er.Full(), 64, [(3, 4)], "Full() without the edge (3, 4)"),
        (
            er.Causal() & er.Documents([300, 400, 324]), 1024, [(500, 10), (20, 9)],
            "(Causal() & Documents(lengths=(300, 400, 324))) and one edge more, (500, 10), "
            "and without the edge (20, 9)",
        ),
        (er.Empty(), 9, [(0, 4), (7, 7)], "only the edges (0, 4) and (7, 7)"),
        (er.Empty(), 9, [(0, 4)], "only the edge (0, 4)"),
    ],
)  # fmt: skip
def test_a_few_edges_off_is_said_as_such(relation, n, edges, told):
    assert words(changed(relation, n, *edges)) == told


@pytest.mark.parametrize("relation", KNOWN, ids=str)
def test_what_has_a_name_is_called_by_it(relation):
    if len(str(relation)) <= 40:
        assert words(relation.on(N)) == str(identify(relation.on(N)))


def _read_back(text, n):
    """The relation that a difference in words describes, where each side lists one edge at most."""
    name = re.split(r" and one edge more| without the edge", text)[0]
    relation = parse(name.removeprefix("(").removesuffix(")") if name.startswith("(") else name)
    assert isinstance(relation, er.Relation)
    dense = relation.on(n).dense()
    for sign, i, j in re.findall(r"(edge more,|without the edge) \((\d+), (\d+)\)", text):
        assert dense[int(i), int(j)] == (sign == "without the edge")
        dense[int(i), int(j)] ^= True
    return Neighborhoods.from_dense(dense)


@settings(max_examples=150, deadline=None)
@given(relation=st.sampled_from(KNOWN), i=st.integers(0, 35), j=st.integers(0, 35))
def test_one_edge_off_is_read_back_from_its_words(relation, i, j):
    n = 36
    if isinstance(relation, er.Documents) or "lengths" in str(relation) or "Padding" in str(relation):
        n = N  # these bring their own size
        i, j = i % n, j % n
    if not relation.on(n).num_edges:
        return
    bound = changed(relation, n, (i, j))
    text = words(bound)
    assert "FromMask" not in text
    assert "Graph" not in text
    if "edges" in text:
        return  # several edges from something else, of which the first is named
    if "one edge more" in text or "without the edge" in text:
        assert _read_back(text, n) == bound
    elif " of " not in text and "only the edge" not in text:
        assert parse(text).on(n) == bound


def test_what_was_expected_comes_first():
    expected = er.Causal() & er.Padding(15)
    bound = changed(er.Causal(), 16, (2, 5))
    assert words(bound, expected) == "(Causal() & Padding(15)) and 2 edges more, first (2, 5)"
    assert words(bound, expected.on(16)) == words(bound, expected)
    mask = np.random.default_rng(0).random((16, 16)) < 0.5
    irregular = er.FromMask(mask)
    assert words(changed(irregular, 16, (3, 3)), irregular).startswith("what was expected ")
    # What was expected is far away, or has another size: the nearest relation is named, or none.
    assert words(bound, er.Window(1)) == "Causal() and one edge more, (2, 5)"
    assert words(bound, er.Documents([3, 4])) == "Causal() and one edge more, (2, 5)"
    assert words(irregular.on(16), er.Causal()).endswith("116 of 256 pairs; row 0 reads 1..3, 11, 13 and 15")


def test_by_rows():
    columns = np.zeros((24, 24), bool)
    columns[:, [0, 3, 4, 5, 8, 9, 11, 13, 17, 19, 20, 22]] = True
    assert words(Neighborhoods.from_dense(columns)) == (
        "every row reads the same 12 of 24 keys: 0, 3..5, 8..9, 11, 13, 17, 19..20 and 22"
    )
    assert words(Neighborhoods.from_dense(columns[:7])).startswith("every row reads the same 12 of 24 keys")
    scattered = np.zeros((20, 20), bool)
    keys = np.arange(20) * 7 % 20
    scattered[np.arange(20), keys] = scattered[np.arange(20), keys - 9] = True
    assert words(Neighborhoods.from_dense(scattered)) == "every row reads 2 of 20 keys; row 0 reads 0 and 11"
    wide = np.random.default_rng(0).random((8, 300)) < 0.5
    assert re.fullmatch(
        r"\d+ of 2400 pairs; row 0 reads \d+ keys between \d+ and \d+", words(Neighborhoods.from_dense(wide))
    )


def test_rows_that_do_not_count_are_not_spoken_of():
    dense = changed(er.Causal(), 16, (9, 12)).dense()
    dense[:4] = np.random.default_rng(0).random((4, 16)) < 0.5
    assert words(Neighborhoods.from_dense(dense), rows=np.arange(4, 16)) == (
        "Causal() and one edge more, (9, 12)"
    )


@settings(max_examples=200, deadline=None)
@given(q=st.integers(1, 7), k=st.integers(1, 7), data=st.data())
def test_there_are_always_words(q, k, data):
    dense = np.array(data.draw(st.lists(st.booleans(), min_size=q * k, max_size=q * k))).reshape(q, k)
    rows = data.draw(st.none() | st.lists(st.integers(0, q - 1), min_size=1, unique=True).map(np.array))
    text = words(Neighborhoods.from_dense(dense), rows=rows)
    assert text
    assert "FromMask" not in text
    assert "Graph" not in text
