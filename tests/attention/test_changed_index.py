"""A packed relation whose numbers change: what is computed is what they say now."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from erlangen.attention import attend, pack
from erlangen.relations import ALiBi, Causal, RelativeBias, Weighted, Window


def in_place(index, numbers):
    index.copy_(numbers)


def behind_autograd(index, numbers):
    index.data.copy_(numbers)


def through_numpy(index, numbers):
    index.numpy()[:] = numbers.numpy()


@pytest.mark.parametrize("backend", ["edges", "tiles"])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("change", [in_place, behind_autograd, through_numpy])
def test_every_change_is_noticed(backend, inference, change) -> None:
    x = torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(0))
    first, second = (pack(r, 9, backend=backend) for r in (Causal(), Window(2, 3)))
    with torch.inference_mode(inference):
        used = replace(first, index=first.index.clone())
        torch.testing.assert_close(attend(x, x, x, used), attend(x, x, x, Causal(), backend="reference"))
        change(used.index, second.index)
        expected = attend(x, x, x, Window(2, 3), backend="reference")
        torch.testing.assert_close(attend(x, x, x, used), expected)
        through_operator = getattr(torch.ops.erlangen, backend)(
            x, x, x, None, None, used.index, None, 0.5, 0.0, False, 0, 0.0, 0.0
        )[0]
        torch.testing.assert_close(through_operator, expected)


def test_an_index_that_is_filled_anew_changes_no_other_packing() -> None:
    x = torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(0))
    first, second = pack(Window(2), 9), pack(Window(0, 2), 9)
    first.index.copy_(second.index)
    expected = attend(x, x, x, Window(2), backend="reference")
    torch.testing.assert_close(attend(x, x, x, pack(Window(2), 9)), expected)
    torch.testing.assert_close(attend(x, x, x, Window(2)), expected)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda table: ALiBi(table[:, 0]),
        lambda table: RelativeBias(table, relation=Causal(), bidirectional=False),
        lambda table: Weighted(Causal(), table[:, :36].unflatten(1, (6, 6))),
    ],
)
def test_log_weights_of_compiled_code_may_change(make, learned) -> None:
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(0)
    x, table = torch.randn(1, 2, 6, 4, generator=generator), torch.rand(2, 40, generator=generator)
    with torch.set_grad_enabled(learned):
        relation = make(table.requires_grad_(learned))
        compiled = torch.compile(lambda x: attend(x, x, x, relation), backend="aot_eager")
        with torch.no_grad():
            before = compiled(x)
            table.mul_(5).add_(torch.rand(2, 40, generator=generator))
            relation = make(table) if learned else relation  # its views belong to the old graph
            expected = attend(x, x, x, relation, backend="reference")
            assert (before - expected).abs().max() > 1e-3
            torch.testing.assert_close(compiled(x), expected)
