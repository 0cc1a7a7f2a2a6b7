"""Nothing that a module holds grows with the calls that are made: caches are bounded and can be emptied."""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Set
from typing import Any
from weakref import WeakSet

import torch

import erlangen as er
from erlangen.attention.binding import CACHE_SIZE, clear_cache
from erlangen.caches import CACHES, Recent


def keepers() -> Iterator[tuple[str, Any]]:
    """Every container that a module of the package, or a class in it, holds under a name of its own."""
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "erlangen" and module is not None:
            for key, value in list(vars(module).items()):
                if not key.startswith("__"):
                    yield f"{name}.{key}", value
                    if isinstance(value, type) and value.__module__ == name:
                        yield from ((f"{name}.{key}.{k}", v) for k, v in vars(value).items() if k[:2] != "__")


def size(value: Any, depth: int = 4) -> int:
    """How many values a container holds, and those in it."""
    if hasattr(value, "cache_info"):
        return value.cache_info().currsize
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    elif isinstance(value, (Recent, WeakSet)):
        return len(value)
    elif not isinstance(value, (list, tuple, Set, deque)):
        return 0
    return len(value) + (sum(size(item, depth - 1) for item in list(value)) if depth else 0)


def sizes() -> dict[str, int]:
    return {name: size(value) for name, value in keepers()}


class Model(torch.nn.Module):
    def __init__(self, relation: Any) -> None:
        super().__init__()
        self.layer = er.Attention(8, 2, relation=relation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def work(n: int) -> None:
    """Calls of every kind, none of which was made before with this n."""
    torch._dynamo.reset()
    x = torch.randn(1, 2, n, 8)
    window = er.Window(n - 3)
    er.attend(x, x, x, window)
    er.plan(x, x, x, window)
    er.attend(x, x, x, er.pack(window, n))
    er.attend(x[..., -1:, :], x, x, window)
    er.attend(x, x, x, er.ALiBi(2, relation=er.Causal()), return_lse=True)
    er.attend_triples(x, x, x, x, x, er.WindowSquared(n - 3))
    torch.compile(lambda q: er.attend(q, q, q, window), backend="aot_eager")(x)
    er.audit(Model(window), torch.randn(2, n, 8), er.Causal() & er.Window(n - 3), budget=20)


def bounded(cache: Any) -> bool:
    if isinstance(cache, Recent):
        return cache.size < 2000
    return hasattr(cache, "cache_info") and (cache.cache_info().maxsize or 2000) < 2000


def test_only_bounded_caches_grow_while_calls_are_made():
    from erlangen.integrations import masks  # noqa: F401
    from erlangen.nn import edge_index  # noqa: F401
    from erlangen.training import batches

    for n in (5, 6):
        work(n)
    before = sizes()
    for n in (7, 8, 9):
        work(n)
    after = dict(keepers())
    grown = {name for name, count in sizes().items() if count > before.get(name, 0)}
    assert grown, "the calls left no trace, so that this test would show nothing"
    assert {name for name in grown if not bounded(after[name])} == set()
    batches.Shuffled(5, 2, 0)(1)
    clear_cache()
    assert [cache for cache in CACHES if size(cache)] == []


def test_a_keeper_that_grows_is_seen(monkeypatch):
    kept: dict[int, list[int]] = {0: []}
    monkeypatch.setattr(er.caches, "kept", kept, raising=False)
    before = sizes()
    kept[0].append(1)
    assert {name for name, count in sizes().items() if count > before.get(name, 0)} == {
        "erlangen.caches.kept"
    }


def test_every_cache_has_a_bound():
    assert all(map(bounded, CACHES))
    assert not bounded(functools.cache(len))
    assert not bounded({})


def test_what_backends_derive_of_a_relation_is_bounded():
    bound = er.attention.binding.bind(er.Causal(), batch=1, heads=1, queries=4, keys=4)
    for key in range(3 * CACHE_SIZE):
        assert bound.derived(key, lambda key=key: key) == key
    assert len(bound._derived) <= CACHE_SIZE
    assert bound.derived(3 * CACHE_SIZE - 1, lambda: None) == 3 * CACHE_SIZE - 1
