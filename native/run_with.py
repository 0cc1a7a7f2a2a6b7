"""Runs pytest with the extension of another build directory: run_with.py DIRECTORY PYTEST_ARGUMENTS..."""

import importlib.util
import sys
from pathlib import Path

import pytest

(library,) = Path(sys.argv[1]).glob("_native*.so")
spec = importlib.util.spec_from_file_location("erlangen._native", library)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
sys.modules["erlangen._native"] = module
spec.loader.exec_module(module)
sys.exit(pytest.main(sys.argv[2:]))
