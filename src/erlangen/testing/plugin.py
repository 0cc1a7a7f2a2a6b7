"""The pytest plugin: the assertions as fixtures. It imports torch only when a test asks for one of them.

def test_decoder(assert_causal):
    assert_causal(model, inputs)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def assert_relation() -> Callable[..., Any]:
    """`erlangen.testing.assert_relation`."""
    from erlangen import testing

    return testing.assert_relation


@pytest.fixture
def assert_causal() -> Callable[..., Any]:
    """`erlangen.testing.assert_causal`."""
    from erlangen import testing

    return testing.assert_causal


@pytest.fixture
def assert_no_padding_leak() -> Callable[..., Any]:
    """`erlangen.testing.assert_no_padding_leak`."""
    from erlangen import testing

    return testing.assert_no_padding_leak


@pytest.fixture
def assert_same_relation() -> Callable[..., Any]:
    """`erlangen.testing.assert_same_relation`."""
    from erlangen import testing

    return testing.assert_same_relation


@pytest.fixture
def assert_equivariant() -> Callable[..., Any]:
    """`erlangen.testing.assert_equivariant`."""
    from erlangen import testing

    return testing.assert_equivariant
