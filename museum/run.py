"""`make museum`: audit released faults, each under the version that has it and under one that does not.

Every version gets an environment of its own below build/museum; torch and the rest are shared with the one
that runs this, so that only transformers and what it pins are installed. Prints a table, writes it as JSON
with `--json FILE`, and fails unless every fault is flagged and every fixed version passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

from exhibits import EXHIBITS, Exhibit

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "museum"


def environment(version: str, numpy: str | None) -> Path:
    """The Python of an environment with this transformers, made if it is not there."""
    place = PLACE / f"transformers-{version}"
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    done = place / ".installed"
    if done.exists():
        return python
    print(f"installing transformers {version}", file=sys.stderr, flush=True)
    venv.create(place, with_pip=True, clear=True)
    own = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    # Named so that it is read last: what is installed here goes before what is shared.
    shared = f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n"
    Path(own, "zz_shared.pth").write_text(shared, encoding="utf-8")
    pins = [f"transformers=={version}", *([f"numpy=={numpy}"] if numpy else [])]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True, stdout=sys.stderr)
    done.touch()
    return python


def measured(name: str, version: str, numpy: str | None) -> dict[str, Any]:
    """What the audit says about an exhibit under one version."""
    python = environment(version, numpy)
    command = [python, Path(__file__).with_name("exhibits.py"), name]
    # Old versions predate this torch and say so at length.
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{name} under transformers {version} failed:\n{result.stderr}")
    found: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    if found["transformers"] != version:
        raise SystemExit(f"{name}: transformers {found['transformers']} was imported instead of {version}")
    return found


def line(name: str, exhibit: Exhibit, bad: dict[str, Any], fixed: dict[str, Any]) -> str:
    """One exhibit for reading."""
    edge = None if bad["edge"] is None else tuple(bad["edge"])
    return (
        f"{name}: expected {exhibit.expect}\n"
        f"  transformers {exhibit.bad}: {bad['verdict']}, {bad['module']}: {bad['measured']}, edge {edge}\n"
        f"  transformers {exhibit.fixed}: {fixed['verdict']}, {fixed['measured']}"
    )


def main() -> int:
    """Run every exhibit; 0 when all are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="exhibits; all of them if none is given")
    parser.add_argument("--json", type=Path, help="also write what was measured")
    options = parser.parse_args()
    record, wrong = {}, []
    for name in options.names or EXHIBITS:
        exhibit = EXHIBITS[name]
        bad = measured(name, exhibit.bad, exhibit.numpy)
        fixed = measured(name, exhibit.fixed, None)
        record[name] = {"bad": bad, "fixed": fixed}
        print(line(name, exhibit, bad, fixed), flush=True)
        if bad["verdict"] != "violated" or fixed["verdict"] != "holds":
            wrong.append(name)
        if not (bad["unchanged"] and fixed["unchanged"]):
            wrong.append(name)
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=2), encoding="utf-8")
    print(f"{len(record) - len(set(wrong))} of {len(record)} faults flagged, and their fixed versions passed")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
