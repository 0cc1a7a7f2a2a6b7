"""Looks pinned dependencies up in a database of known vulnerabilities: audit_dependencies.py PIP_AUDIT FILE.

Exit code 0: none is known. 1: some are, and they are listed. 2: the database could not be asked, or not about
all of them, which is never taken for an answer.
"""

import json
import subprocess
import sys


def main(command: str, pinned: str) -> int:
    run = subprocess.run(
        [
            command,
            "--requirement",
            pinned,
            "--no-deps",
            "--disable-pip",
            "--format",
            "json",
            "--progress-spinner",
            "off",
        ],
        capture_output=True,
        text=True,
    )
    try:
        listed = json.loads(run.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (run.stderr.strip() or "it said nothing").splitlines()[-1]
        print(f"NOT CHECKED: the database of vulnerabilities could not be asked ({reason})", file=sys.stderr)
        return 2
    unknown = [entry for entry in listed if "skip_reason" in entry]
    if unknown or not listed:
        for entry in unknown if len(unknown) < len(listed) else unknown[:1]:
            print(f"NOT CHECKED: {entry['name']}: {entry['skip_reason']}", file=sys.stderr)
        print(f"NOT CHECKED: {len(unknown)} of {len(listed)} dependencies have no answer", file=sys.stderr)
    found = [entry for entry in listed if entry.get("vulns")]
    for entry in found:
        for fault in entry["vulns"]:
            fixed = ", ".join(fault.get("fix_versions") or ["none yet"])
            print(f"{entry['name']} {entry['version']}: {fault['id']}, fixed in {fixed}")
    print(
        f"{len(listed) - len(unknown)} pinned dependencies looked up, {len(found)} with known vulnerabilities"
    )
    return 1 if found else 2 if unknown or not listed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
