"""Findings: what an audit reports, as typed values. Their text is made here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

KINDS = {
    "edge": "a query reads a key that it must not, or does not read one that it must",
    "padding": "a real position depends on padding",
    "invariance": "padding changes the outputs of real positions",
    "batch": "sequences of one batch read each other",
    "labels": "an output depends on the labels",
    "silent": "an output depends on nothing",
    "finite": "an output is not finite",
    "state": "the model could not be left as it was",
    "witnesses": "two measurements contradict each other",
}
"""Every kind of finding and what it means."""


@dataclass(frozen=True)
class Finding:
    """One broken obligation: where, under which feeding, and the edge that shows it.

    >>> print(Finding("edge", "layers.0", "Causal()", "Full()", query=0, key=1))
    layers.0: expected Causal(), measured Full(); extra edge (0, 1)
    """

    kind: str
    """One of `KINDS`."""
    module: str = ""
    """The attention call's module, or "the whole model" for a finding of the flow."""
    expected: str = ""
    measured: str = ""
    item: int | None = 0
    head: int | None = None
    query: int | None = None
    key: int | None = None
    extra: bool = True
    """True: the edge is there and must not be. False: it is missing."""
    where: str = "given"
    """The feeding under which it was found."""
    size: float | None = None
    """How much the output moves, relative to its largest entry; None where only a call was measured."""
    origin: str | None = None
    """The innermost module in which the dependence enters, with its type."""
    source: str | None = None
    """File and line of the code that made the call, or in which the dependence enters."""
    content: str | None = None
    """The input that is read."""
    output: str | None = None
    """The output that reads it; None where there is only one."""
    added: str = ""
    """The mask that the audit added to the inputs for this feeding; empty where it added none."""
    also: tuple[str, ...] = ()
    """Other feedings under which the same is broken."""
    documents: tuple[int, int] | None = None
    """The documents of the query and of the key, where several are packed into one sequence."""
    packing: str = "document"
    """What such a part is called: a document, or the input that numbers the parts."""
    detail: str = ""
    """What else there is to say: how many edges, which module is to blame, a sentence for other kinds."""

    def at(self, **changes: Any) -> Finding:
        """The same finding with some fields filled in."""
        return replace(self, **changes)

    @property
    def feeding(self) -> str:
        """The feeding under which it was found."""
        return self.where

    @property
    def name(self) -> str:
        """The module, in words."""
        return self.module or "the model"

    @property
    def pair(self) -> tuple[int, int] | None:
        """(query, key), for a picture; None where there is no edge."""
        return None if self.query is None or self.key is None else (self.query, self.key)

    @property
    def edge(self) -> str:
        """The edge, in words."""
        told = f"{'extra' if self.extra else 'missing'} edge ({self.query}, {self.key})"
        return told if self.documents is None else f"{told}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """What is wrong with the edge: "query 7 reads key 3"; for other kinds what there is to say."""
        if self.kind != "edge" or self.pair is None:
            return self.detail
        first, second = (
            ["", ""] if self.documents is None else [f" ({self.packing} {part})" for part in self.documents]
        )
        if self.module == "the whole model":
            verb = "depends" if self.extra else "does not depend"
            return f"output row {self.query}{first} {verb} on position {self.key}{second}"
        return (
            f"query {self.query}{first} {'reads' if self.extra else 'does not read'} key {self.key}{second}"
        )

    def __str__(self) -> str:
        added = f", with {self.added} added by the audit" if self.added else ""
        where = "" if self.where == "given" else f" ({self.where}{added})"
        item = f", item {self.item}" if self.item else ""
        head = "" if self.head is None else f", head {self.head}"
        if self.kind != "edge":
            item = f", item {self.item}" if self.head is not None else ""
            return f"{self.name}{item}{head}{where}: {self.detail}"
        text = (
            f"{self.name}{item}{head}{where}: expected {self.expected}, measured {self.measured}; {self.edge}"
        )
        return text + (f"; {self.detail}" if self.detail else "")

    def explained(self) -> str:
        """The finding with its evidence."""
        return f"{self} [{self.evidence}]" if self.evidence else str(self)

    @property
    def evidence(self) -> str:
        """The output, the size of the dependence, where it enters, the line of code, other feedings."""
        parts = []
        if self.output:
            parts.append(self.output if self.output.startswith("the output") else f"output {self.output}")
        if self.size is not None:
            parts.append(f"size {self.size:.1g}")
        if self.origin is not None:
            parts.append(f"enters in {self.origin}")
        if self.source is not None:
            parts.append(f"at {self.source}")
        if self.also:
            parts.append(f"also under {', '.join(self.also)}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kind": self.kind,
            "module": self.module,
            "feeding": self.where,
            "item": self.item,
            "head": self.head,
            "query": self.query,
            "key": self.key,
            "documents": None if self.documents is None else list(self.documents),
            "edge": None if self.query is None else "extra" if self.extra else "missing",
            "expected": self.expected or None,
            "measured": self.measured or None,
            "input": self.content,
            "output": self.output,
            "size": self.size,
            "origin": self.origin,
            "source": self.source,
            "where": self.where,
            "also": list(self.also),
            "text": self.explained(),
        }


Counterexample = Finding
"""The finding of an edge: the name it has where an expectation is broken."""


def merged(findings: list[Finding]) -> list[tuple[Finding, list[str]]]:
    """Findings that differ only in their module together: (the first, all modules).

    >>> twelve = [Finding("edge", f"layers.{i}", "Causal()", "Full()", query=0, key=1) for i in range(12)]
    >>> [(str(first.edge), len(modules)) for first, modules in merged(twelve)]
    [('extra edge (0, 1)', 12)]
    """
    found: dict[Finding, list[Finding]] = {}
    for one in findings:
        same = one.at(module="the whole model" if one.module == "the whole model" else "", source=None)
        found.setdefault(same, []).append(one)
    return [(group[0], list(dict.fromkeys(one.module for one in group))) for group in found.values()]


def lines(findings: list[Finding]) -> list[str]:
    """Findings as text, a line each; equal ones of several modules once."""
    return [
        first.explained()
        + (f" (and {len(modules) - 1} more modules, to {modules[-1]})" if len(modules) > 1 else "")
        for first, modules in merged(findings)
    ]
