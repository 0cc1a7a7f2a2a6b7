"""Demo chapter: what a relation assumes, proven, and the paper's ranking put to the test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

from erlangen.paper.hasse import save
from erlangen.paper.theorems import run
from erlangen.paper.three_orders import ORDERS, hierarchy
from erlangen.relations import Bipartite, Causal, Documents, FromMask, Window
from erlangen.taxonomy import Certificate, classify, verify


def chapter(console: Console, out: Path) -> None:
    """Classify relations by what they are, check certificates, draw the hierarchy, run two theorems."""
    order = np.array([3, 0, 4, 1, 2])
    shuffled = FromMask(Causal().on(5).permute(order).dense())
    relations = (Causal(), Window(lookback=2), Bipartite(3, 4), Documents([2, 2, 2]), shuffled)
    console.print("A relation is classified by what it is, not by how it was written:")
    for relation in relations:
        bias = classify(relation)
        where = f"n = {bias.n}" if bias.n is not None else f"every n >= {bias.from_n}"
        console.print(
            f"  {relation}: {bias.kind}, symmetry {bias.symmetry} ({where})", markup=False, soft_wrap=True
        )
    found = classify(shuffled).order
    console.print(
        f"The last one is a total order too, in the order {None if found is None else found.tolist()}."
    )

    proof = classify(Window(lookback=2), 8).certificates["transitive"]
    bound = Window(lookback=2).on(8)
    corrupt = Certificate(proof.claim, proof.value, {"triple": [3, 1, 1]}, proof.size)
    console.print(
        f"A window is not transitive; the certificate: {proof.to_json()}", markup=False, soft_wrap=True
    )
    console.print(f"  checked: {verify(proof, bound)}; with another triple: {verify(corrupt, bound)}")

    picture = out / "hierarchy.png"
    save([hierarchy(order) for order in ORDERS], picture)
    console.print(f"The hierarchy in three orders: {picture}", soft_wrap=True)
    for name in ("Theorem 3", "Theorem 6"):
        [finding] = run(name)
        judged = f"as printed {finding.printed.verdict}, as meant {finding.meant.verdict}"
        console.print(
            f"{finding.item}: {judged}, its proof {finding.proof.verdict}. {finding.corrected} "
            f"[{finding.evidence}]",
            markup=False,
            soft_wrap=True,
        )
    console.print('All of them: "erlangen theorems"', markup=False)
