"""Which module embeds the ids of a content, and changes of what it returns."""

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


@contextmanager
def noise_behind(
    model: nn.Module, content: Content, positions: list[int], item: int | None, seed: int
) -> Iterator[None]:
    """Add noise to what an embedding returns at some positions, the first time it is called with the
    tokens; where a token is padding, at these alone."""
    pad = content.pad
    module = model.get_submodule(content.embedding or "" if pad is None else pad.embedding)
    done = False

    def add(_: nn.Module, args: Any, output: Any) -> Any:
        nonlocal done
        if done or not isinstance(output, torch.Tensor) or output.shape[:-1] != content.tensor.shape:
            return None
        done = True
        with torch._C.DisableTorchFunction():  # a tracer must see the same operations as without noise
            return noisy(output)

    def noisy(output: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(1_000_003 + seed)
        noise = torch.randn(output.shape, generator=generator, device="cpu").to(output)
        spread = float(output.detach().float().std(correction=0).nan_to_num()) or 1.0
        result = output.clone()
        for position in positions:
            where = content.where(position, item)
            result[where] = output[where] + noise[where] * spread
        if pad is not None:
            kept = content.tensor.to(output.device) != pad.token
            result = torch.where(kept.unsqueeze(-1), output, result)
        return result

    handle = module.register_forward_hook(add)
    try:
        yield
    finally:
        handle.remove()
