"""Whether the given inputs give the same outputs once more: observed or not, and when all is over."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from erlangen.audit.case import Examiner
from erlangen.audit.feeding import Feeding
from erlangen.audit.flow_verdict import FlowVerdict
from erlangen.audit.observed import unwrapped
from erlangen.audit.outputs import floating, output_tensors
from erlangen.audit.state import same_bits
from erlangen.audit.witnesses.flow import measure
from erlangen.audit.witnesses.runs import Runner


def compare_paths(examiner: Examiner, feeding: Feeding, verdict: FlowVerdict) -> None:
    """Measure the flow under an idle observer as well: PyTorch then leaves its fast path."""
    flow, content = verdict.flow, feeding.reading.content(verdict.flow.content)
    if content is None or not flow.complete:
        return
    try:
        flows = measure(examiner.runner(feeding, observed=True), content)
    except Exception:
        return  # only the fast path takes these inputs
    for watched in flows:
        if watched.output != flow.output:
            continue
        for b, (a, c) in enumerate(zip(flow.relations, watched.relations, strict=True)):
            apart = verdict.meaningful(a ^ c, b).edges()
            if len(apart) and verdict.fast_path is None:
                verdict.fast_path = b, int(apart[0, 0]), int(apart[0, 1])


def has_fast_path(model: nn.Module) -> bool:
    """Whether PyTorch may run other code when nobody watches."""
    fast = (nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention)
    return unwrapped(model) is model and any(isinstance(module, fast) for module in model.modules())


def other_path(model: nn.Module, before: Any, observed: Any) -> str:
    seen = dict(floating(observed))
    apart = [
        name or "the output"
        for name, tensor in floating(before)
        if name not in seen or not torch.allclose(tensor, seen[name], rtol=1e-2, atol=1e-4, equal_nan=True)
    ]
    if apart and unwrapped(model) is model:
        path = "PyTorch leaves its fast path" if has_fast_path(model) else "the model takes other code"
        return f"under observation {path}, and {apart[0]} is another one (rows of padding, or more)"
    if unwrapped(model) is not model:
        return (
            "the model is compiled: calls were seen in the code before compilation, the flow in the compiled"
        )
    if has_fast_path(model):
        return "under observation PyTorch leaves its fast path: outputs agree up to rounding, not bit for bit"
    return "under observation the outputs are not bit-identical: the model takes other code when observed"


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
