"""The groups do without torch."""

from __future__ import annotations

import subprocess
import sys


def test_symmetry_and_the_testing_package_start_without_torch():
    code = "import sys, erlangen.symmetry, erlangen.testing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
