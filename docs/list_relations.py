"""Write the lists that follow from the relations: the README's table, and the names for type checkers.

Run it as `python docs/list_relations.py`.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import erlangen.relations
from erlangen.relations import Relation, TernaryRelation, WeightedRelation
from erlangen.relations.catalogue import WRITTEN, kinds
from erlangen.relations.families import Family

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PACKAGE = Path(erlangen.relations.__file__)
STUB = PACKAGE.with_suffix(".pyi")
HEADER = "| relation | what it is: query i reads key j |\n|---|---|\n"


def row(name: str) -> str:
    """How a relation is written, and the first line of what its class says of it."""
    kind = WRITTEN[name]
    given = inspect.signature(kind).parameters.values()
    arguments = ", ".join(str(one.replace(annotation=inspect.Parameter.empty)) for one in given)
    line = (inspect.getdoc(kind) or "").split("\n")[0].replace("|", r"\|")
    return f"| `{name}({arguments})` | {line} |"


def table() -> str:
    """The README's table: relations of pairs, families, weighted and ternary relations, geometries."""
    groups = [kinds(base) for base in (Relation, Family, WeightedRelation, TernaryRelation)]
    names = dict.fromkeys(name for group in [*groups, WRITTEN] for name in sorted(group))
    return HEADER + "\n".join(map(row, names)) + "\n"


def with_table(page: str) -> str:
    """A page with the table in place of the one that it has."""
    before, after = page.split(HEADER)
    return before + table() + "\n" + after.split("\n\n", 1)[1]


def stub() -> str:
    """The package for type checkers: what its own file imports, and every relation by name."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(PACKAGE.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("erlangen"):
            names = {alias.name for alias in node.names} & set(erlangen.relations.__all__)
            found.setdefault(node.module, set()).update(names)
    for name, kind in WRITTEN.items():
        found.setdefault(kind.__module__, set()).add(name)
    lines = ['"""Every name of the package for type checkers; written by docs/list_relations.py."""', ""]
    lines += [
        f"from {module} import {name} as {name}" for module in sorted(found) for name in sorted(found[module])
    ]
    listed = "".join(f'    "{name}",\n' for name in erlangen.relations.__all__)
    return "\n".join(lines) + f"\n\n__all__ = [\n{listed}]\n"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
