"""Chapter: the paper's Table 2 on the models themselves, as their libraries ship them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from erlangen.relations import Causal, Full, Graph, Relation

if TYPE_CHECKING:
    from rich.console import Console
    from torch import nn

EDGES = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (5, 0))
"""A small graph for GAT: pairs (source, target), read by the target."""


@dataclass(frozen=True)
class Row:
    """One architecture of Table 2: the attention it is said to have, and the relations that would mean."""

    name: str
    claimed: str
    library: str
    build: Callable[[], tuple[nn.Module, Any]]
    expect: dict[str, Relation]


def _transformers(model_type: str, n: int) -> Callable[[], tuple[nn.Module, Any]]:
    def build() -> tuple[nn.Module, Any]:
        from erlangen.audit.targets import transformers_model

        return transformers_model(model_type, n)

    return build


def _gat() -> tuple[nn.Module, Any]:
    import warnings

    import torch

    with warnings.catch_warnings():
        # Some of its parts are compiled in a way that newer versions of torch call deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import GAT

    torch.manual_seed(0)
    edges = torch.tensor(EDGES).T
    return GAT(8, 8, num_layers=2, heads=2).eval(), {"x": torch.randn(6, 8), "edge_index": edges}


GRAPH = Graph([(target, source) for source, target in EDGES] + [(i, i) for i in range(6)], nodes=6)
ROWS = (
    Row("GAT", "graph-based", "torch_geometric", _gat, {"*": GRAPH}),
    Row("BERT", "self-attention", "transformers", _transformers("bert", 16), {"*": Full()}),
    Row("GPT-2", "masked", "transformers", _transformers("gpt2", 16), {"*": Causal()}),
    # Every strided relation is causal, whatever its stride: an edge outside Causal() breaks them all.
    Row("ViT", "strided", "transformers", _transformers("vit", 16), {"*": Causal()}),
    Row(
        "T5", "encoder-decoder", "transformers", _transformers("t5", 16),
        {"encoder*": Full(), "*EncDecAttention": Full(), "decoder*": Causal()},
    ),
)  # fmt: skip


def chapter(console: Console, out: Path) -> None:
    """Audit every row, print claimed beside measured, write one page for each and say where."""
    from importlib.util import find_spec

    from rich.progress import Progress
    from rich.table import Table

    from erlangen.audit.api import audit

    console.print("Third-party models, small and with random weights; what each attention call really reads:")
    table = Table("model", "claimed in Table 2", "measured, call by call", "outputs depend on", "the claim")
    written, broken = [], []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("auditing", total=len(ROWS))
        for row in ROWS:
            progress.update(task, description=f"auditing {row.name}")
            if find_spec(row.library) is None:
                table.add_row(row.name, row.claimed, f"{row.library} is not installed", "-", "-")
            else:
                report = audit(*row.build(), row.expect)
                kinds = dict.fromkeys(f"{call.kind}: {_text(call.kernel_text)}" for call in report.calls)
                flow = "-" if report.flow is None else _text(report.flow.relation_text)
                table.add_row(row.name, row.claimed, "\n".join(kinds), flow, report.verdict)
                broken += [(row, one) for one in report.counterexamples[:1]]
                written.append(report.save(out / f"audit-{row.name.lower()}.html"))
            progress.advance(task)
    console.print(table)
    for row, one in broken:
        told = f"{row.name} is not {row.claimed}: in {one.module} query {one.query} reads key {one.key}."
        console.print(told, markup=False, soft_wrap=True)
    for path in written:
        console.print(f"wrote {path}", markup=False, soft_wrap=True)


def _text(text: str) -> str:
    return text if len(text) <= 44 else f"{text[:41]}..."
