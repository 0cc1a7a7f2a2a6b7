"""Random small models: with a fault an audit never says `holds`, without one never `violated`.

ERLANGEN_RANDOM_MODELS is the number of models that are audited, 25 by default.
"""

import os

import pytest

from audit.random_models import build, faults, plan, wrong
from erlangen.audit import audit

COUNT = int(os.environ.get("ERLANGEN_RANDOM_MODELS", "25"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_model_is_judged_rightly(seed):
    made = plan(seed)
    report = audit(*build(made))
    assert report.verdict != ("violated" if made.fault is None else "holds"), f"{made}\n{report}"


DECIDABLE = [seed for seed in range(200) if plan(seed).fault is None and plan(seed).decidable]


@pytest.mark.parametrize("seed", DECIDABLE[-max(8, COUNT // 20) :])
def test_undecided_is_no_refuge(seed):
    made = plan(seed)
    report = audit(*build(made))
    assert report.verdict == "holds", f"{made}\n{report}"


@pytest.mark.parametrize("seed", range(min(max(COUNT, 40), 400)))
def test_the_fault_is_real_and_the_only_one(seed):
    made = plan(seed)
    found = wrong(made)
    assert (found is None) == (made.fault is None), f"{made}\n{found}"


def test_all_kinds_of_faults_occur():
    plans = [plan(seed) for seed in range(500)]
    chosen = {made.fault for made in plans}
    assert chosen >= {None, *(name for made in plans for name in faults(made))}
    assert 0.3 < sum(made.fault is None for made in plans) / len(plans) < 0.7


def test_the_same_seed_gives_the_same_model():
    one, other = build(plan(3))[0].state_dict(), build(plan(3))[0].state_dict()
    assert all(bool((one[name] == other[name]).all()) for name in one)
