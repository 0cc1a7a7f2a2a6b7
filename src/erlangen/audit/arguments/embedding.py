"""Which module embeds the ids of a content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from erlangen.audit.inputs import Content, Inputs


def embedding_of(model: nn.Module, inputs: Inputs, content: Content, run: Callable[..., Any]) -> str | None:
    """The name of the first module that takes these ids and returns one vector for each of them."""
    names: list[str] = []
    ids = content.tensor

    def look(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            taken = args[0] if args else None
            same = (
                isinstance(taken, torch.Tensor) and not taken.is_floating_point() and taken.shape == ids.shape
            )
            if same and isinstance(output, torch.Tensor) and output.shape[:-1] == ids.shape:
                unlike = (taken != ids).float().mean() if taken is not None else 1.0
                if float(unlike) < 0.5:  # placeholders are often replaced before they are looked up
                    names.append(name)

        return hook

    with ExitStack() as stack:

        @contextmanager
        def looking() -> Iterator[None]:
            for name, module in model.named_modules():
                if isinstance(module, nn.Embedding) or not list(module.children()):
                    stack.callback(module.register_forward_hook(look(name)).remove)
            yield

        run(inputs, looking())
    return names[0] if names else None
