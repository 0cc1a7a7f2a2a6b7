"""Hypothesis, for every test: no deadlines (machines differ), and the same examples in every run of CI."""

import os

from hypothesis import settings

settings.register_profile("erlangen", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("erlangen")
