"""Relations are values: copies and pickles of any expression are equal to it."""

from __future__ import annotations

import copy
import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from erlangen.testing.strategies import relations


@settings(max_examples=60)
@given(st.integers(0, 6).flatmap(lambda n: relations(n, 5)))
def test_copies_and_pickles(relation):
    assert copy.deepcopy(relation) == relation
    assert copy.copy(relation) == relation
    assert pickle.loads(pickle.dumps(relation)) == relation
    assert repr(copy.deepcopy(relation)) == repr(relation)
