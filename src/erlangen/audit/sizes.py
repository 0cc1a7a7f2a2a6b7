"""The sizes that a model names for itself: where one lies beyond the input, nothing is known about what it
does."""

from __future__ import annotations

from typing import Any

from torch import nn

_WORDS = (
    "window",
    "chunk",
    "block_size",
    "blocks_size",
    "stride",
    "segment",
    "local",
    "bucket",
    "span",
    "keep_",
)
_NOT = ("num_", "patch", "kernel", "dropout", "vocab", "head", "padding", "layers", "relative", "step")
_TAKEN = {nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d}


def named_sizes(model: nn.Module) -> list[tuple[str, int]]:
    """Windows, chunks, blocks and strides in configurations and in integer attributes of modules, by name.

    >>> model = nn.Identity()
    >>> model.chunk_size, model.hidden_size = 16, 64
    >>> named_sizes(model)
    [('chunk_size', 16)]
    """
    found: dict[str, int] = {}
    parts: list[tuple[str, Any]] = []
    config = getattr(model, "config", None)
    if config is not None:
        parts.append(("", config))
        parts += [
            (f"{name}.", part)
            for name, part in getattr(config, "__dict__", {}).items()
            if name.endswith("config") and hasattr(part, "__dict__")
        ]
    for name, module in model.named_modules():
        if type(module) not in _TAKEN:
            parts.append((f"{name}." if name else "", module))
    seen: set[tuple[str, int]] = set()
    for prefix, part in parts:
        for name, value in getattr(part, "__dict__", {}).items():
            if not any(word in name for word in _WORDS) or any(word in name for word in _NOT):
                continue
            values = value if isinstance(value, list | tuple) else [value]
            sizes = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 1]
            if sizes and (name, max(sizes)) not in seen:
                seen.add((name, max(sizes)))
                found[f"{prefix}{name}"] = max(sizes)
    return list(found.items())
