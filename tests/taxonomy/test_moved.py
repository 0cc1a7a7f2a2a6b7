"""Names that left the package work for one version, and say where they are now."""

import pytest

import erlangen
from erlangen import paper, taxonomy


@pytest.mark.parametrize("name", ["Hierarchy", "hierarchy"])
def test_what_moved_to_the_paper_is_found_and_said(name):
    with pytest.warns(DeprecationWarning, match=f"is now erlangen.paper.{name}") as said:
        assert getattr(taxonomy, name) is getattr(paper, name)
    assert said[0].filename == __file__


def test_the_name_of_the_package_itself_says_so_where_it_is_used(monkeypatch):
    monkeypatch.delitem(vars(erlangen), "hierarchy", raising=False)  # found before by another test
    with pytest.warns(DeprecationWarning, match="erlangen.hierarchy is now erlangen.paper.hierarchy") as said:
        assert erlangen.hierarchy is paper.hierarchy
    assert said[0].filename == __file__


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="nothing"):
        taxonomy.nothing  # noqa: B018
