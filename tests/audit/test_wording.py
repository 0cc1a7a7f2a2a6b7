"""Irregular relations in words: no text of an audit shows the abbreviated entries of a mask."""

import re

import numpy as np
import pytest

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import AtMost, audit
from erlangen.audit.page import render
from erlangen.audit.wording import irregular, wanted
from erlangen.testing import assert_relation

N = 16
NEVER = re.compile(r"FromMask|(?:&lt;|<)\d+ edges|\d+ x \d+, \d+ edges")


def random_mask(seed, density=0.5, n=N):
    return er.FromMask((np.random.default_rng(seed).random((n, n)) < density) | np.eye(n, dtype=bool))


def texts(report):
    """Everything a reader may see of a report."""
    yield str(report)
    yield repr(report)
    yield report.dumps()
    yield render(report)
    yield from map(str, report.findings)
    yield from (one.explained() for one in report.findings)


MASKS = {
    "one head": [[random_mask(0)]],
    "heads differ": [[er.Causal(), random_mask(1)], [random_mask(2), random_mask(3)]],
    "many heads": [[random_mask(seed) for seed in range(4, 8)]],
    "sparse": [[random_mask(8, 0.1)]],
    "nearly full": [[random_mask(9, 0.97)]],
    "causal": [[er.Causal() & random_mask(10)]],
    "regular": [[er.Causal()]],
}
EXPECTED = {
    "a mask": random_mask(11),
    "another density": random_mask(12, 0.1),
    "a composed mask": er.Causal() & random_mask(13),
    "a bound": AtMost(random_mask(14)),
    "by head": er.PerHead([er.Causal(), random_mask(15)]),
    "by item": er.Batch([random_mask(16), random_mask(17)]),
    "a graph": er.Graph([(i, (3 * i + k * k) % N) for i in range(N) for k in range(6)], nodes=N),
    "by module": {"layers.0.*": random_mask(18), "*": AtMost(random_mask(19))},
    "regular": er.Causal(),
    "nothing": None,
}


PAIRS = [(made, expect) for made in MASKS for expect in ("a mask", "regular", "nothing")]
PAIRS += [("heads differ", expect) for expect in EXPECTED if ("heads differ", expect) not in PAIRS]


@pytest.mark.parametrize(("made", "expect"), PAIRS)
def test_no_text_shows_the_entries_of_a_mask(made, expect):
    masks, expected = MASKS[made], EXPECTED[expect]
    report = audit(stack(masks, N), vectors(N), expected, feedings=["shorter", "training"])
    if made == "regular" and expect in ("regular", "nothing"):
        assert report.holds
    elif expected is not None:
        assert report.verdict == "violated"
        assert report.findings
    for text in texts(report):
        assert not NEVER.search(text), NEVER.search(text)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_is_true(seed):
    """The number of pairs and the keys of the first row are those of the mask."""
    mask = random_mask(seed)
    report = audit(stack([[mask]], N), vectors(N), er.Causal(), feedings=["shorter"], flow=False)
    told = report.calls[0].kernel_text
    pairs, row, keys = re.fullmatch(r"(\d+) of 256 pairs; row (\d+) reads (.*)", told).groups()
    dense = mask.on(N).dense()
    assert int(pairs) == dense.sum()
    listed = [part.split("..") for part in re.split(r", | and ", keys)]
    read = [k for ends in listed for k in range(int(ends[0]), int(ends[-1]) + 1)]
    assert read == np.flatnonzero(dense[int(row)]).tolist()


def test_a_mask_that_has_a_name_is_called_by_it():
    assert wanted(er.FromMask(er.Window(3).on(N).dense()), N, N) == "Window(lookback=3)"
    model = stack([[er.FromMask(er.Causal().on(N).dense())]], N)
    report = audit(model, vectors(N), er.FromMask(er.Window(3).on(N).dense()), variants=False)
    assert "expected Window(lookback=3), measured Causal(); extra edge (4, 0)" in str(report)


def test_near_an_irregular_expectation_the_difference_is_said():
    mask = random_mask(3)
    hole = er.FromMask(mask.on(N).dense() ^ (np.arange(N * N).reshape(N, N) == 5 * N + 9))
    assert (5, 9) in [tuple(edge) for edge in mask.on(N).edges().tolist()]
    report = audit(stack([[hole]], N), vectors(N), mask, variants=False)
    assert "measured what was expected without the edge (5, 9); missing edge (5, 9)" in str(
        report.findings[0]
    )
    assert not NEVER.search(str(report.findings[0]))


def test_heads_are_told_apart():
    first, second = random_mask(1), random_mask(2)
    report = audit(stack([[er.Causal(), first, first, second]], N), vectors(N), variants=False)
    told = report.calls[0].kernel_text
    assert told.startswith("head 0: Causal(); head 1-2: ")
    assert "; head 3: " in told


def test_an_assertion_says_it_in_words():
    with pytest.raises(AssertionError) as told:
        assert_relation(stack([[random_mask(5)]], N), vectors(N), random_mask(6), feedings=["shorter"])
    assert "the given mask (" in str(told.value).splitlines()[0]
    assert not NEVER.search(str(told.value))


def test_expressions_are_left_alone():
    for one in (er.Causal(), er.Window(3) | er.Global(keys=[0]), er.PerHead([er.Causal(), er.Full()])):
        assert not irregular(one)
        assert wanted(one, N, N) == str(one)
