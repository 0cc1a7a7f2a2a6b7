"""The generated part of docs/benchmarks.md, between two markers."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.results import Results
from benchmarks.table import (
    HEADER,
    PEER_HEADER,
    SLOPE_HEADER,
    markdown,
    peer_rows,
    rows,
    slope_rows,
)

BEGIN = "<!-- results: written by `python -m benchmarks --write-docs` -->"
END = "<!-- end of results -->"


def write_docs(results: Results, page: Path, pictures: list[Path]) -> None:
    """Replace what lies between the markers of a page by the results."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no markers {BEGIN!r} and {END!r}")
    page.write_text(
        before + BEGIN + "\n\n" + body(results, page, pictures) + "\n\n" + END + after, encoding="utf-8"
    )


def body(results: Results, page: Path, pictures: list[Path]) -> str:
    """Machine, tables and pictures as Markdown."""
    machine = results["machine"]
    parts = [
        f"Measured on {machine['processor']}, {machine['threads']} threads, {machine['simd']}, "
        f"torch {machine['torch']}, {machine['dtype']}: "
        f"matrix product {machine['matmul_gflops']:.0f} GFLOP/s, "
        f"memory copy {machine['copy_gb_per_s']:.0f} GB/s.",
        markdown(HEADER, rows(results)),
        markdown(SLOPE_HEADER, slope_rows(results)),
        *(f"![{path.stem}]({os.path.relpath(path, page.parent)})" for path in pictures),
        "Every peer of every case; the first call includes compilation, masks and planning:",
        markdown(PEER_HEADER, peer_rows(results)),
    ]
    parts += [f"{name} failed: {why}" for name, why in results["failed"].items()]
    return "\n\n".join(parts)
