"""Every contender computes what erlangen computes, at tiny sizes, outputs and gradients."""

from __future__ import annotations

import warnings

import pytest
import torch
from benchmarks.agreement import Disagreement, agree
from benchmarks.cases import ALL, TRAINING
from benchmarks.peers import CannotRun, load

from benchmarks import measure

COMPILED = "flex"  # compiling takes seconds: one case stands for all
PAIRS = [
    pytest.param(case, mode, peer, id=f"{case.name}-{mode}-{peer}")
    for case in ALL
    for mode in case.modes
    for peer in case.peers
    if peer != COMPILED or case.name == "window-8"
]


def results(case, mode, module):
    problem = case.make(case.tiny)
    upstream = problem.upstream(mode == TRAINING)
    return measure.step(load(module).prepare(problem, mode == TRAINING), problem.inputs, upstream)


@pytest.mark.parametrize(("case", "mode", "peer"), PAIRS)
def test_peers_agree_with_erlangen(case, mode, peer):
    with warnings.catch_warnings():  # other libraries deprecate as they like
        warnings.simplefilter("ignore")
        if (peer, mode) == ("flex", TRAINING) or (peer == "gat_conv" and "additive" not in case.name):
            with pytest.raises(CannotRun, match=r"backward|a_i \+ b_j"):
                results(case, mode, peer)
            return
        theirs = results(case, mode, peer)
    ours = results(case, mode, "erlangen")
    assert len(ours) == (1 if mode == "forward" else 1 + len(case.make(case.tiny).inputs))
    agree(ours, theirs, peer)


def test_a_disagreement_is_noticed():
    a = torch.ones(3)
    agree([a], [a + 1e-6], "nearly")
    with pytest.raises(Disagreement, match=r"off: the output differs by 0\.01"):
        agree([a], [a + 0.01], "off")
    with pytest.raises(Disagreement, match="gradient of input 1"):
        agree([a, a, a], [a, a, -a], "off")
    with pytest.raises(Disagreement, match="shape"):
        agree([a], [torch.ones(4)], "off")
    with pytest.raises(Disagreement, match="results"):
        agree([a], [a, a], "off")
    with pytest.raises(Disagreement, match="differs by nan"):
        agree([a * torch.nan], [a], "off")


def test_pairs_and_operations_are_those_of_the_relation():
    case = next(case for case in ALL if case.name == "window-8")
    problem = case.make(32)
    assert problem.pairs == 8 * (9 * 32 - 36)
    assert problem.flops(training=False) == 4 * 64 * problem.pairs
    assert problem.flops(training=True) == 14 * 64 * problem.pairs
