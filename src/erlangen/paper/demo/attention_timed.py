"""Chapter: attention whose cost follows the edges, planned and timed beside a dense mask."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from erlangen.attention import attend, plan
from erlangen.relations import Causal, Documents, Full, Random, Window

LENGTH = 2048
HEADS, DIM = 4, 64
TURNS = 3


def chapter(console: Console, out: Path) -> None:
    """What `plan` decides for some relations, and the time beside SDPA with a dense mask."""
    torch.manual_seed(0)
    relations = {
        "full": Full(),
        "causal": Causal(),
        "window": Window(lookback=128),
        "packed documents": Documents([256] * (LENGTH // 256)) & Causal(),
        "random graph": Random(16, seed=0),
    }
    table = Table(title=f"{LENGTH:,} positions, {HEADS} heads x {DIM}, this CPU; medians of {TURNS} runs")
    for column in ("relation", "pairs", "backend", "attend", "SDPA, dense mask", "largest difference"):
        table.add_column(column)
    q, k, v = (torch.randn(1, HEADS, LENGTH, DIM) for _ in range(3))
    for name, relation in relations.items():
        mask = torch.from_numpy(relation.on(LENGTH).dense())
        contenders = (
            lambda relation=relation: attend(q, k, v, relation),
            lambda mask=mask: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        )
        with torch.no_grad():
            ours, dense = (contender() for contender in contenders)
            times = [_time(contender) for contender in contenders]
        difference = (ours - dense).abs().max().item()
        table.add_row(
            name,
            f"{relation.on(LENGTH).density:.1%}",
            plan(q, k, v, relation).backend,
            *(f"{taken * 1e3:.1f} ms" for taken in times),
            f"{difference:.0e}",
        )
    console.print(table)
    console.print("It trains at the same cost: [bold]er.Attention(256, num_heads=4, relation=...)[/bold].")


def _time(run: Any) -> float:
    taken = []
    for _ in range(TURNS):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return median(taken)
