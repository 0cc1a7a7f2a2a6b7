"""For every test: seeded generators, no Hypothesis deadlines (machines differ), one set of examples in CI."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("erlangen", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("erlangen")


@pytest.fixture(autouse=True)
def _seeded():
    """No test depends on luck: each begins from the same random state, whatever ran before it."""
    torch.manual_seed(0)
