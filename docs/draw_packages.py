"""Draws the packages and who imports whom, as the source says it, into docs/images/packages.svg.

Run `python docs/draw_packages.py` when a test says that the picture is out of date. Every import counts,
wherever it stands: at the top of a module, inside a function, for type checkers alone, or as the text given
to `import_module`. An arrow that follows from others (a package imports what its imports import) is left out.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "erlangen"
PICTURE = ROOT / "docs" / "images" / "packages.svg"

ABOUT = {
    "relations": "which keys a query reads",
    "symmetry": "their groups, exactly",
    "taxonomy": "verdicts, certificates",
    "equivariance": "of black boxes",
    "attention": "attend, plan, backends",
    "nn": "layers",
    "models": "the architectures",
    "training": "recipes",
    "integrations": "transformers, PyG, masks",
    "show": "every picture",
    "audit": "what a model really reads",
    "testing": "for test suites",
    "paper": "the reproduction",
    "commands": "the command line",
}
WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 176, 46, 24, 44, 14


def imports_of(source: str) -> set[str]:
    """The modules of erlangen that a file imports, by their dotted names.

    >>> sorted(imports_of("def f():\\n    from erlangen.show import figures"))
    ['erlangen.show', 'erlangen.show.figures']
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and one.value}
    return {name for name in found if name.split(".")[0] == "erlangen"}


def packages() -> list[str]:
    """The packages of the library, by name."""
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def arrows() -> dict[str, set[str]]:
    """Each package and the packages it imports."""
    known = set(packages())
    found: dict[str, set[str]] = {}
    for package in sorted(known):
        names = {
            name for path in (SOURCE / package).rglob("*.py") for name in imports_of(path.read_text("utf-8"))
        }
        found[package] = {part for name in names for part in name.split(".")[1:2]} & known - {package}
    return found


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """Everything that a package imports, directly or through others."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        package = waiting.pop()
        if package not in seen:
            seen.add(package)
            waiting += graph[package]
    return seen


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The graph without the arrows that follow from others (its transitive reduction)."""
    return {
        package: {one for one in below if not any(one in reachable(graph, other) for other in below)}
        for package, below in graph.items()
    }


def levels(graph: dict[str, set[str]]) -> list[list[str]]:
    """The packages in rows: each above all that it imports, right below the first that imports it, so that
    few arrows pass a row. A cycle raises `graphlib.CycleError`.
    """
    order = list(TopologicalSorter(graph).static_order())
    level: dict[str, int] = {}
    for package in order:
        level[package] = 1 + max((level[one] for one in graph[package]), default=-1)
    for package in reversed(order):
        above = [level[one] for one in graph if package in graph[one]]
        level[package] = min(above, default=level[package] + 1) - 1
    rows: list[list[str]] = [[] for _ in range(1 + max(level.values()))]
    for package in sorted(graph):
        rows[level[package]].append(package)
    return rows


def centred(rows: list[list[str]], graph: dict[str, set[str]]) -> dict[str, tuple[float, float]]:
    """The middle of each package's box: rows from the top down, a package near those that it imports."""
    widest = max(map(len, rows))
    across: dict[str, float] = {}
    for row in rows:
        order = sorted(
            row, key=lambda one: (sum(across[b] for b in graph[one]) / max(len(graph[one]), 1), one)
        )
        for place, package in enumerate(order):
            across[package] = (place + (widest - len(row)) / 2) * (WIDTH + ACROSS) + WIDTH / 2 + MARGIN
    return {
        package: (across[package], (len(rows) - 1 - down) * (HEIGHT + DOWN) + HEIGHT / 2 + MARGIN)
        for down, row in enumerate(rows)
        for package in row
    }


def svg(graph: dict[str, set[str]]) -> str:
    """The picture: an arrow leads from a package to one that it imports."""
    kept, rows = reduced(graph), levels(graph)
    middle = centred(rows, kept)
    width = max(map(len, rows)) * (WIDTH + ACROSS) - ACROSS + 2 * MARGIN
    height = len(rows) * (HEIGHT + DOWN) - DOWN + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for package, below in sorted(kept.items()):
        for other in sorted(below):
            (x, y), (u, v) = middle[package], middle[other]
            y, v = y + HEIGHT / 2, v - HEIGHT / 2
            bend = (v - y) / 2
            lines.append(
                f'<path d="M{x:g} {y:g}C{x:g} {y + bend:g} {u:g} {v - bend:g} {u:g} {v:g}" '
                'fill="none" stroke="#667" marker-end="url(#tip)"/>'
            )
    for package, (x, y) in sorted(middle.items()):
        lines += [
            f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
            'fill="#eef3f8" stroke="#0072b2"/>',
            f'<text x="{x:g}" y="{y - 3:g}" font-size="15" font-weight="bold" fill="#123">{package}</text>',
            f'<text x="{x:g}" y="{y + 14:g}" font-size="12" fill="#345">{ABOUT[package]}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(svg(arrows()), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")
