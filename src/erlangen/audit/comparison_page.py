"""A comparison as one page that needs no network: every relation that differs, one matrix for each side."""

from __future__ import annotations

from pathlib import Path

from erlangen.audit.comparison import Comparison, Difference
from erlangen.audit.page import environment
from erlangen.show.svg import Picture, picture


def save(result: Comparison, path: str | Path) -> Path:
    """Write the page and return where."""
    path = Path(path)
    path.write_text(render(result), encoding="utf-8")
    return path


def render(result: Comparison) -> str:
    """The page as text. Every name that comes from a model is escaped."""
    head = str(result).splitlines()[0].partition(": ")[2]
    tone = "good" if result.same else "bad" if result.differs else "open"
    lists = [
        ("Weights that differ", [(str(one), True) for one in result.weights]),
        ("Outputs", [(str(one), not one.rounding) for one in result.outputs]),
        ("What could not be compared", [(text, False) for text in result.unmatched]),
        ("How it was compared", [(text, False) for text in result.notes]),
    ]
    cards = [(one, _pictures(one)) for one in result.differences]
    template = environment().get_template("comparison.html")
    return template.render(result=result, head=head, tone=tone, cards=cards, lists=lists)


def _pictures(one: Difference) -> list[Picture]:
    if one.bounds is None:
        return []
    mine, theirs = one.bounds
    pair = one.query, one.key
    return [
        picture(bound, other, edge=pair if name == one.reader else None, label=name)
        for name, bound, other in zip(one.sides, (mine, theirs), (theirs, mine), strict=True)
    ]
