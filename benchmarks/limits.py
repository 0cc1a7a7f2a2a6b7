"""What the machine can do: the speed of a large matrix product, and of copying memory."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from benchmarks.peers import Run

SIDE = 2048
COPIED = 2**28
"""Bytes read, and as many written."""


def matmul() -> Run:
    """A float32 product of two square matrices, timed among the contenders of every case."""
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    out = torch.empty(SIDE, SIDE)
    return lambda: torch.mm(a, b, out=out)


def gflops(milliseconds: float) -> float:
    """The speed of `matmul` from its time."""
    return 2 * SIDE**3 / milliseconds / 1e6


def copy() -> Run:
    """A copy from one large buffer to another."""
    source, out = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
    return lambda: out.copy_(source)


def gigabytes_per_second(milliseconds: float) -> float:
    """Memory bandwidth from the time of `copy`: what is read and what is written."""
    return 2 * COPIED / milliseconds / 1e6


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "dtype": "float32",
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
