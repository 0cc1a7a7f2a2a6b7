"""Inputs that join the rows behind attention: skip connections, features of each token."""

from __future__ import annotations

from erlangen.audit.flow_verdict import FlowVerdict, Scene
from erlangen.audit.inputs import Content
from erlangen.audit.witnesses.flow import differs
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Identity


def joins_later(verdict: FlowVerdict, content: Content, scene: Scene) -> bool:
    """Whether rows take an input at their own positions while attention is about another one.

    No call that was seen has keys of it; where attention is hidden, each row reads its own position of it at
    most, and other positions of another input. Nothing is then missing of it.
    """
    relations = verdict.flow.relations
    if not any(seen.num_edges for seen in relations):
        return False  # it is not used at all
    read = {name for call in scene.calls for name in call.key_inputs}
    if content.name in read:
        return False
    if scene.covered and scene.calls:
        return bool(read)
    own = all(
        seen.queries == seen.keys and not (seen - Identity().on(seen.queries)).num_edges for seen in relations
    )
    return own and scene.others_spread is not None and scene.others_spread(content, verdict.flow.output)


def others_spread(runner: Runner, content: Content, output: str) -> bool:
    """Whether rows of an output move with another position than their own of some other input of this
    length."""
    place = next((one for one in runner.places() if one.name == output), None)
    if place is None:
        return False  # rows inside the model
    for one in runner.reading.sequences:
        if one is content or one.length != content.length or one.length < 2:
            continue
        for j in (0, one.length - 1):
            try:
                moved = differs(place.rows(runner.changed(one, j)), place.rows(runner.base()))[0]
            except Exception:
                continue  # its own flow says why it cannot be changed
            moved[:, j] = False
            if bool(moved.any()):
                return True
    return False
