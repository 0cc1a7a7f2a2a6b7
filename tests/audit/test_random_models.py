"""Random small models: with a fault an audit never says `holds`, without one never `violated`.

ERLANGEN_RANDOM_MODELS is the number of models that are audited, 24 by default, in parts that can run side by
side. Every part has a seed of its own, so that the same models are composed every time.
"""

import os
from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider

from audit.random_models import Plan, build, faults, plans, wrong
from erlangen.audit import audit

COUNT = int(os.environ.get("ERLANGEN_RANDOM_MODELS", "24"))
PARTS = 4 if COUNT < 100 else 20


def composed(part: int, count: int) -> Callable[[Callable[[Plan], None]], Callable[[], None]]:
    """Run a check on so many random models, of which the simplest that fails is told."""

    def of(check: Callable[[Plan], None]) -> Callable[[], None]:
        drawn = seed(part)(settings(max_examples=count, database=None)(given(plans())(check)))
        # Hypothesis also draws numbers found in imported modules; which those are depends on other tests.
        return patch.object(HypothesisProvider, "_maybe_draw_constant", lambda *_, **__: None)(drawn)

    return of


@pytest.mark.parametrize("part", range(PARTS))
def test_a_random_model_is_judged_rightly(part):
    @composed(part, COUNT // PARTS)
    def judged_rightly(made: Plan) -> None:
        report = audit(*build(made))
        if made.fault is not None:
            assert report.verdict != "holds", report
        elif made.decidable:  # undecided is no refuge
            assert report.verdict == "holds", report
        else:
            assert report.verdict != "violated", report

    judged_rightly()


@pytest.mark.parametrize("part", range(PARTS))
def test_the_fault_is_real_and_the_only_one(part):
    @composed(part, 2 * COUNT // PARTS)
    def the_only_one(made: Plan) -> None:
        assert (wrong(made) is None) == (made.fault is None)

    the_only_one()


def test_all_kinds_of_faults_occur():
    found: list[Plan] = []

    @composed(0, 500)
    def collect(made: Plan) -> None:
        found.append(made)

    collect()
    assert {made.fault for made in found} == {None, *(name for made in found for name in faults(made))}
    assert 0.3 < sum(made.fault is None for made in found) / len(found) < 0.7


@composed(0, 5)
def test_the_same_plan_gives_the_same_model(made: Plan) -> None:
    one, other = build(made)[0].state_dict(), build(made)[0].state_dict()
    assert all(bool((one[name] == other[name]).all()) for name in one)
