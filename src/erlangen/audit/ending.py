"""The given inputs once more, at the end: what an audit changed outside the model it cannot put back."""

from __future__ import annotations

from typing import Any

from erlangen.audit.outputs import output_tensors
from erlangen.audit.state import same_bits
from erlangen.audit.witnesses.runs import Runner


def same_outputs(a: Any, b: Any) -> bool:
    """Whether two outputs hold the same tensors, bit for bit."""
    left, right = dict(output_tensors(a)), dict(output_tensors(b))
    return list(left) == list(right) and all(same_bits(left[name], right[name]) for name in left)


def at_the_end(runner: Runner, before: Any) -> str:
    """What the given inputs show after all feedings that they did not show before; empty where nothing.

    It is one more run, whatever the budget: only the end can tell that the model is unchanged. What a module
    holds is put back before every run, so what differs here lies elsewhere: in a dictionary of the file, in
    `lru_cache`, in another object that the module does not hold.
    """
    kept = (
        "it keeps something outside of itself (a global of its file, the cache of a function) that other "
        "inputs changed and that was not put back: keep it in the module, and audit it again in a new process"
    )
    try:
        last = runner.on(runner.inputs)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        why = f"{type(error).__name__}: {first}"
        return f"after the audit the model does not run on the given inputs ({why}); {kept}"
    if same_outputs(before, last):
        return ""
    return f"after the audit the given inputs give other outputs than before; {kept}"
