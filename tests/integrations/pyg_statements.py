"""Runs PyG's own tests of its attention layers with `RelationConv` in their place, statement by statement.

    git clone --branch 2.8.0 https://github.com/pyg-team/pytorch_geometric
    python tests/integrations/pyg_statements.py pytorch_geometric/test/nn/conv [--theirs]

Each statement is run on its own, so that one that fails hides none after it; what needs a value that a
statement before it did not give counts as not reached. `--theirs` runs PyG's own layers, for comparison.
"""

from __future__ import annotations

import ast
import itertools
import os
import sys
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from types import ModuleType
from typing import Any

import torch

from erlangen.errors import ErlangenError
from erlangen.integrations.pyg import RelationConv

KERNELS = {"TransformerConv": "dot", "GATConv": "additive", "GATv2Conv": "gatv2"}


class NotReached(Exception):
    """A value that was not made is used."""


class Missing:
    def __getattribute__(self, name: str) -> Any:
        raise NotReached

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise NotReached

    __getitem__ = __call__


class Statement:
    """Notes how a statement ended, and goes on."""

    def __init__(self, text: str, outcomes: Counter[tuple[str, str]]) -> None:
        self.text, self.outcomes = text, outcomes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            outcome = "same"
        elif isinstance(error, NotReached | UnboundLocalError | NameError):
            outcome = "not reached"
        elif isinstance(error, ErlangenError):
            outcome = f"refused: {error}"
        else:
            outcome = f"differs: {type(error).__name__} {' '.join(str(error).split())[:100]}"
        self.outcomes[self.text, outcome] += 1
        return True


class Apart(ast.NodeTransformer):
    """Puts every statement into a `with` of its own; a name it gives a value to is `missing` before."""

    def __init__(self, source: str) -> None:
        self.source = source

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        return node  # the modules that PyG's tests hand to TorchScript

    def alone(self, node: Any) -> Any:
        text = f"{node.lineno}: {' '.join((ast.get_source_segment(self.source, node) or '').split())}"
        (block,) = ast.parse(f"with statement({text!r}): pass").body
        assert isinstance(block, ast.With)
        block.body = [node]
        names = [t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)]
        return [*ast.parse("".join(f"{name} = missing\n" for name in names)).body, block]

    visit_Assign = visit_Assert = visit_Expr = visit_With = alone


def run(path: Path, theirs: bool) -> Counter[tuple[str, str]]:
    source, outcomes = path.read_text(), Counter()
    tree = ast.parse(source)
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for test in tests:
        test.body = [part for node in test.body for part in _listed(Apart(source).visit(node))]
    module = sys.modules[path.stem] = ModuleType(path.stem)
    module.__dict__.update(statement=lambda text: Statement(text, outcomes), missing=Missing())
    # TorchScript looks for the source of classes in a file.
    module.__file__ = str(written := Path(gettempdir()) / f"apart_{path.name}")
    written.write_text(ast.unparse(ast.fix_missing_locations(tree)))
    exec(compile(written.read_text(), written, "exec"), module.__dict__)
    for name, kernel in KERNELS.items():
        if hasattr(module, name) and not theirs:
            setattr(module, name, partial(RelationConv, kernel=kernel))
    for test in tests:
        function = getattr(module, test.name)
        marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
        for values in itertools.product(*(mark.args[1] for mark in marks)):
            torch.manual_seed(0)
            values = [getattr(value, "values", [value])[0] for value in values]
            function(**dict(zip((mark.args[0] for mark in marks), values, strict=True)))
    return outcomes


def _listed(node: Any) -> list[Any]:
    return node if isinstance(node, list) else [node]


def main(folder: str, *options: str) -> None:
    os.environ["FULL_TEST"] = "1"  # the statements on TorchScript
    warnings.simplefilter("ignore")
    total = Counter()
    for name in ("transformer", "gat", "gatv2"):
        outcomes = run(Path(folder) / f"test_{name}_conv.py", "--theirs" in options)
        kinds = Counter()
        for (_, outcome), times in outcomes.items():
            kinds[outcome.partition(":")[0]] += times
        total += kinds
        print(f"test_{name}_conv.py: {dict(kinds)}")
        for (text, outcome), times in outcomes.items():
            if outcome != "same":
                print(f"  {times} x {text[:120]}\n        {outcome}")
    print(f"{total.total()} statements: {dict(total)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
