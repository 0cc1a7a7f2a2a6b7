"""Buffers of large results are used again once nobody uses them, and only then."""

from __future__ import annotations

import gc
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.utils.dlpack import from_dlpack

from erlangen.attention import attend, packing
from erlangen.attention.binding import clear_cache
from erlangen.relations import Window

MB = 2**20


@pytest.fixture(autouse=True)
def empty_pool():
    clear_cache()
    yield
    clear_cache()


def memory(megabytes):
    return from_dlpack(packing.native.pooled_buffer(megabytes * MB))


def test_freed_memory_is_used_again_and_memory_in_use_is_not():
    first = memory(40)
    place = first.data_ptr()
    second = memory(40)
    assert second.data_ptr() != place
    del first
    assert memory(40).data_ptr() == place  # and freed again
    third = memory(33)  # a little less will do
    assert third.data_ptr() == place
    alias = third[5:]
    del third
    assert memory(40).data_ptr() != place
    del alias
    assert memory(40).data_ptr() == place


def test_a_block_is_not_used_for_much_less_than_it_holds():
    place = memory(80).data_ptr()
    assert memory(40).data_ptr() != place
    assert memory(80).data_ptr() == place


def test_a_capsule_nobody_consumed_gives_its_memory_back():
    place = memory(40).data_ptr()
    capsule = packing.native.pooled_buffer(40 * MB)
    assert memory(40).data_ptr() != place
    del capsule
    gc.collect()
    assert memory(40).data_ptr() == place


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident set cannot be read here")
def test_at_most_a_gibibyte_is_kept_and_clear_cache_gives_it_back():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / MB

    before = resident()
    blocks = [memory(320).fill_(1) for _ in range(4)]
    assert resident() > before + 1200
    del blocks
    # Three blocks of four; what others gave back meanwhile is less than one.
    assert before + 3 * 320 - 200 < resident() < before + 1024 + 64
    clear_cache()
    assert resident() < before + 64


def test_memory_must_have_a_size():
    with pytest.raises(ValueError, match="bytes must be positive"):
        packing.native.pooled_buffer(0)


def test_threads_never_share_memory():
    def work(number):
        for _ in range(20):
            mine = memory(32)
            mine[::4096] = number
            other = memory(32)
            other[::4096] = number + 100
            assert (mine[::4096] == number).all()
            assert (other[::4096] == number + 100).all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("backend", ["tiles", "edges"])
def test_large_results_are_those_of_a_part(backend, inside):
    n, part, relation = 70_000, 500, Window(lookback=2)
    generator = torch.Generator().manual_seed(0)

    def make():
        x = (
            torch.randn(1, n, 4, 32, generator=generator)
            if inside
            else torch.randn(1, 4, n, 32, generator=generator)
        )
        return (x.transpose(1, 2) if inside else x).requires_grad_()

    q, k, v = make(), make(), make()

    def passes(q, k, v):
        out = attend(q, k, v, relation, backend=backend)
        return out, *torch.autograd.grad((out[:, :, : part - 2] ** 2).sum(), (q, k, v))

    whole = passes(q, k, v)
    assert whole[0].nbytes >= packing.native.LARGE
    kept = [x.detach().clone() for x in whole]
    again = passes(q, k, v)  # in other memory, for the first results are in use
    assert {x.data_ptr() for x in again}.isdisjoint(x.data_ptr() for x in whole)
    places = {x.data_ptr() for x in again}
    del again
    third = passes(q, k, v)
    assert {x.data_ptr() for x in third} & places
    few = passes(*(x.detach()[:, :, :part].requires_grad_() for x in (q, k, v)))
    for first, copy, last, expected in zip(whole, kept, third, few, strict=True):
        assert torch.equal(first, copy)
        assert torch.equal(first, last)
        torch.testing.assert_close(first[:, :, : part - 2], expected[:, :, : part - 2])


def test_a_result_moved_to_shared_memory_stays_as_it_is():
    x = torch.randn(1, 4, 70_000, 32)
    shared = attend(x, x, x, Window(lookback=1)).share_memory_()
    copy = shared.clone()
    for _ in range(3):
        attend(-x, x, x, Window(lookback=1))
    assert torch.equal(shared, copy)
