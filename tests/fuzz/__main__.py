"""`python tests/fuzz [--seconds N] [target ...]`: fuzz each target for its share of the time.

A target runs in a process of its own, which an input may end. What finds a fault is kept in the corpus, where
the ordinary tests try it from then on; so does an input that was being tried when a process ended.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
MEMORY = 16 << 30
SLOW = 20
"""Seconds one input may take."""


def fuzz(name: str, seconds: float) -> int:
    """Fuzz one target in this process; the number of inputs that were tried."""
    from hypothesis import HealthCheck, Phase, given, settings
    from mutations import changed
    from targets import CORPUS, seeds, try_one

    inputs = seeds(name)
    trying = CORPUS / name / ".trying"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    tried = 0
    until = time.monotonic() + seconds

    @given(changed(inputs))
    @settings(
        max_examples=1000,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    def attempt(data: bytes) -> None:
        nonlocal tried
        if time.monotonic() > until:
            return
        trying.write_bytes(data)
        signal.alarm(SLOW)
        try_one(name, data)
        signal.alarm(0)
        tried += 1

    for data in inputs:
        try_one(name, data)
    while time.monotonic() < until:
        attempt()
    trying.unlink(missing_ok=True)
    return tried


def main() -> int:
    sys.path.insert(0, str(HERE))
    from targets import CORPUS, TARGETS

    read = argparse.ArgumentParser(prog="fuzz")
    read.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    read.add_argument("--seconds", type=float, default=300, help="in all; each target has its share")
    read.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = read.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        read.error(f"no target is called {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    names = given.targets or list(TARGETS)
    if given.inside:
        print(f"{names[0]}: {fuzz(names[0], given.seconds)} inputs, no fault", flush=True)
        return 0
    faults = 0
    for name in names:
        share = given.seconds / len(names)
        command = [sys.executable, str(HERE), name, "--inside", "--seconds", str(share)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        trying = CORPUS / name / ".trying"
        if ended.returncode:
            faults += 1
            kept = trying.read_bytes() if trying.exists() else b""
            place = CORPUS / name / hashlib.sha256(kept).hexdigest()[:16]
            place.write_bytes(kept)
            print(
                f"{name}: FAULT (exit {ended.returncode}), kept as {place}\n{ended.stderr[-3000:]}",
                flush=True,
            )
        trying.unlink(missing_ok=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
