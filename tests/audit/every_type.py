"""Every model type of the installed transformers: built small, run, audited, one line of JSON each.

    python tests/audit/every_type.py build/every_type.jsonl              all types that have no line yet
    python tests/audit/every_type.py FILE --types gpt2,bert --again      these types once more
    python tests/audit/every_type.py FILE --again-where raw,late         those that ended so, once more
    python tests/audit/every_type.py FILE --summary                      the table alone

Each type runs in a process of its own, with limits of time and memory; stopping the runner loses one line.
It ends with 1 if an audit ended in an error, ran out of time, or if 3% of the types that run are undecided.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
import traceback
import warnings
import zlib
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.audit.targets import transformers_model

ENDS = ("not built", "not run", "raw", "late", "violated", "undecided", "holds")
"""How a type can end; the first two are no audits."""
AUDITED = ENDS[2:]
MEMORY = 5 << 30
BOTH_WAYS = {"xlnet"}
"""Permutation language models: they read both ways unless a permutation is given."""


def expectation(model_type: str, config: Any, inputs: Any) -> AtMost:
    """What is rightly expected: nothing later in decoders of text, anything in all others.

    A decoder has a class for causal language modelling, and is neither an encoder-decoder nor an encoder that
    has such a class beside one for masked tokens (BERT), or a switch that makes it a decoder. Where images or
    sound are fed, their rows may read one another, and those of an image read all of it.
    """
    causal = model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    masked = model_type in {*modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, *BOTH_WAYS}
    other = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", None) is False
    text = set(inputs) <= {"input_ids", "attention_mask"}
    return AtMost(er.Causal() if causal and text and not masked and not other else er.Full())


def one_type(model_type: str, budget: float, n: int, send: Any) -> None:
    """Build, run and audit one type; every step is sent as it is reached."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    row: dict[str, Any] = {"end": "not built"}
    try:
        model, inputs = transformers_model(model_type, n)
        expect = expectation(model_type, model.config, inputs)
        row = {"end": "raw", "model": type(model).__name__, "shapes": _shapes(inputs), "expect": repr(expect)}
        send.send(row)
        report = audit(model, inputs, expect, budget=budget)
        row |= {
            "end": report.verdict,
            "findings": [{"kind": one.kind, "where": one.where, "text": str(one)} for one in report.findings],
            "open": [str(one) for one in report.open],
            "not tried": report.not_tried,
        }
    except Exception as error:
        row |= {"error": f"{type(error).__name__}: {error}"[:500], "at": _places(error)}
        if row["end"] == "not built" and "does not run" in str(error):
            row["end"] = "not run"
    send.send(row)


def _shapes(inputs: Any) -> dict[str, Any]:
    return {name: list(getattr(value, "shape", ())) for name, value in inputs.items()}


def _places(error: BaseException) -> list[str]:
    """The innermost frame inside erlangen and the innermost one, of the error and of its cause."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    ours = [one for one in frames if "/erlangen/" in one.filename]
    return [
        f"{'/'.join(Path(one.filename).parts[-3:])}:{one.lineno} {one.name}: {one.line}"
        for one in (*ours[-1:], *frames[-1:])
    ]


def row_of(model_type: str, seconds: float, budget: float, n: int) -> dict[str, Any]:
    """The row of one type, from a process of its own."""
    context = multiprocessing.get_context("fork")  # torch and transformers are imported once
    receive, send = context.Pipe(duplex=False)
    start = time.monotonic()
    process = context.Process(target=one_type, args=(model_type, budget, n, send))
    process.start()
    send.close()
    row: dict[str, Any] = {"end": "not built", "error": "the process died"}
    ended = False
    while not ended and receive.poll(max(0.0, start + seconds - time.monotonic())):
        try:
            row = receive.recv()
        except EOFError:
            ended = True
    if not ended:
        process.kill()
        row["error"] = f"stopped after {seconds:g} s"
        row["end"] = "late" if row["end"] in AUDITED else row["end"]
    process.join()
    if process.exitcode and "error" not in row:
        row["error"] = f"the process ended with {process.exitcode}"
    return {"type": model_type, **row, "seconds": round(time.monotonic() - start, 1)}


def summary(rows: list[dict[str, Any]]) -> bool:
    """Print how the types ended, with the names that matter; whether all is well."""
    by_end = {end: [row for row in rows if row["end"] == end] for end in ENDS}
    ran = sum(len(by_end[end]) for end in AUDITED)
    print(f"{len(rows)} types, {len(rows) - len(by_end['not built'])} built, {ran} ran")
    for end in ENDS:
        names = "" if end == "holds" else "  " + " ".join(row["type"] for row in by_end[end])
        print(f"{end:10} {len(by_end[end]):4}{names}")
    return not by_end["raw"] and not by_end["late"] and len(by_end["undecided"]) < 0.03 * ran


def _mixed(types: list[str]) -> list[str]:
    """An order in which the first hundred tell about all of them; always the same."""
    return sorted(types, key=lambda name: zlib.crc32(name.encode()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--types", help="comma-separated model types; all by default")
    parser.add_argument("--again", action="store_true", help="also those that have a line")
    parser.add_argument("--again-where", default="", help=f"also those that ended so: {', '.join(ENDS)}")
    parser.add_argument("--seconds", type=float, default=90.0, help="limit for one type")
    parser.add_argument("--budget", type=float, default=10.0, help="budget= of each audit")
    parser.add_argument("--n", type=int, default=12, help="length of the inputs")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    given = parser.parse_args()
    lines = given.file.read_text().splitlines() if given.file.exists() else []
    rows = {row["type"]: row for row in map(json.loads, lines)}  # the last line of a type counts
    every = given.types.split(",") if given.types else _mixed(list(transformers.CONFIG_MAPPING.keys()))
    ends = set(filter(None, given.again_where.split(",")))
    if not given.summary:
        audit(*transformers_model("gpt2", 4), budget=1.0)  # everything is imported once, before the forks
        given.file.parent.mkdir(parents=True, exist_ok=True)
        for name in every:
            if name in rows and not given.again and rows[name]["end"] not in ends:
                continue
            rows[name] = row_of(name, given.seconds, given.budget, given.n)
            with given.file.open("a") as out:
                out.write(json.dumps(rows[name]) + "\n")
            print(name, rows[name]["end"], rows[name].get("error", ""), rows[name]["seconds"], flush=True)
    return 0 if summary(list(rows.values())) else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
