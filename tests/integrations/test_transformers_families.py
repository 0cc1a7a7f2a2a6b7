"""The table of families in docs/transformers.md is what is measured here."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

import transformers_families as families


@pytest.mark.parametrize("family", families.FAMILIES)
def test_a_family_computes_what_eager_does_and_reads_what_the_page_says(family):
    assert families.rows_of_the_page().get(family) == families.row(family), (
        "docs/transformers.md says otherwise; python tests/transformers_families.py writes its table"
    )


def test_the_page_lists_the_tested_families_and_no_others():
    assert list(families.rows_of_the_page()) == families.FAMILIES


def test_a_family_with_other_numbers_is_not_written(monkeypatch):
    def wrong(model, implementation, inputs):
        found = families_run(model, implementation, inputs)
        return [x + 1e-3 * (implementation == "erlangen") for x in found]

    families_run = families.run
    monkeypatch.setattr(families, "run", wrong)
    with pytest.raises(AssertionError, match=r"bert on .erlangen. differs from .eager. by"):
        families.row("bert")


def test_a_family_that_does_not_call_erlangen_is_not_written():
    """CodeGen has attention of its own: switching changes nothing, and the numbers agree."""
    with pytest.raises(AssertionError, match="codegen called erlangen 0 times"):
        families.row("codegen")


def test_a_difference_in_one_gradient_is_seen():
    one = [torch.ones(3) for _ in range(6)]
    other = [*one[:5], torch.tensor([1.0, 1.0, 1.5])]
    assert families.difference(one, other) == pytest.approx(0.25)
