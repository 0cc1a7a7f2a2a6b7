"""Models of transformers on "erlangen" under `torch.compile`: one graph for every batch and length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import erlangen as er

transformers = pytest.importorskip("transformers")

from erlangen.integrations.transformers import register, use_relation  # noqa: E402
from erlangen.integrations.transformers.readings import Extent, read, said_by  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SIZES: Any = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
CONFIGURATIONS: Any = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, num_key_value_heads=1, use_cache=False),
    "mistral": lambda: transformers.MistralConfig(
        **SIZES, num_key_value_heads=1, sliding_window=4, use_cache=False
    ),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2, use_cache=False),
    "bert": lambda: transformers.BertConfig(**SIZES),
}


@pytest.fixture(autouse=True)
def _fresh():
    register()
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def build(name: str) -> Any:
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(CONFIGURATIONS[name](), attn_implementation="erlangen")
    return model.eval()


def batch(items: int, length: int, pads: bool, dynamic: bool) -> dict[str, torch.Tensor]:
    """Token ids, with two kinds of padding in the first two items."""
    generator = torch.Generator().manual_seed(items * length)
    given = {"input_ids": torch.randint(40, (items, length), generator=generator)}
    if pads:
        given["attention_mask"] = torch.ones(items, length, dtype=torch.long)
        given["attention_mask"][0, :3] = 0
        given["attention_mask"][1, -2:] = 0
    if dynamic:
        for tensor in given.values():
            torch._dynamo.mark_dynamic(tensor, 0)  # raises where a size is made a constant
            torch._dynamo.mark_dynamic(tensor, 1)
    return given


def outputs(model: Any, run: Any, given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The output, and the gradients of all parameters."""
    model.zero_grad()
    out = run(**given).last_hidden_state
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    # A parameter that is not used (BERT's pooler) has no gradient, and zeros where it is compiled.
    return [out.detach(), *(torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters())]


def compilations(model: Any, sizes: list[tuple[int, int]], pads: bool, dynamic: bool, backend: str) -> int:
    """How often the model is compiled; every call is compared with the model itself, and no graph breaks."""
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for items, length in sizes:
        found = outputs(model, compiled, batch(items, length, pads, dynamic))
        expected = outputs(model, model, batch(items, length, pads, False))
        assert len(found) == len(expected) > 5
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5 * (1 + other.abs().max().item()), rtol=1e-4)
    return counter.frame_count


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_graph_for_every_batch_and_length(name):
    assert compilations(build(name), [(2, 10), (3, 10), (5, 17)], True, True, "aot_eager") == 1


def test_documents_packed_by_position_are_data():
    """Without an attention mask transformers looks for packed documents: one graph for all packings."""
    model = build("llama")
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    ids = torch.randint(40, (1, 10), generator=torch.Generator().manual_seed(0))
    results = []
    for cut in (4, 7, 10):
        positions = torch.cat([torch.arange(cut), torch.arange(10 - cut)])[None]
        given = {"input_ids": ids, "position_ids": positions}
        results.append(compiled(**given).last_hidden_state)
        torch.testing.assert_close(results[-1], model(**given).last_hidden_state)
    assert not torch.allclose(results[0], results[1])
    assert counter.frame_count == 1


def test_a_layers_own_relation_is_in_the_graph():
    model = build("bert")
    use_relation(model, er.PerHead([er.Window(1, 1), er.Full()]))
    assert compilations(model, [(2, 10)], True, False, "eager") == 1


def test_sizes_that_are_not_marked_compile_as_often_as_pytorch_does():
    """The page says: three times, for the first sizes, another batch, another length."""
    sizes = [(2, 10), (3, 10), (5, 10), (4, 12), (4, 15), (6, 11)]
    assert compilations(build("bert"), sizes, True, False, "eager") == 3


def test_the_operator_reads_what_eager_reads():
    """Static caches, sliding caches, groups that come back: the index is the relation of the mask."""
    from transformers import masking_utils as library

    from erlangen.attention.packing import packed
    from erlangen.integrations.transformers.compiled import Masked

    groups = torch.tensor([[0, 0, 1, 1, 0, 2, 2, -1, -1], [0, 1, 1, -1, 1, 1, 2, 3, 3]])
    functions = [
        library.causal_mask_function,
        library.sliding_window_causal_mask_function(4),
        library.chunked_causal_mask_function(3, torch.tensor([0, 2])),
        library.and_masks(library.causal_mask_function, library.packed_sequence_mask_function(groups)),
        library.or_masks(library.causal_mask_function, library.blockwise_overlay(groups)),
        lambda b, h, i, j: (i * j) % 3 != 1,
    ]
    real = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [1] * 9]).bool()
    extents = [
        Extent(2, 9, 9),
        Extent(2, 3, 9, query_offset=4),
        Extent(2, 3, 7, query_offset=6, key_offset=2),
    ]
    for function in functions:
        for extent in extents:
            said = said_by(function, extent)
            index = Masked(said, extent, real).index
            made = packed(index)
            reading, seen = read(said, extent, real)
            dense = torch.stack([torch.from_numpy(near.dense()) for near in made.distinct])
            found = dense[torch.from_numpy(made.which)][:, 0]
            expected = library.sdpa_mask(
                2, extent.queries, extent.keys, extent.query_offset, extent.key_offset, function, real,
                allow_is_causal_skip=False,
            )[:, 0]  # fmt: skip
            assert torch.equal(found.expand_as(expected), expected), (function, extent)
            assert packed(index.clone()).distinct == made.distinct
            assert seen <= extent.keys
            assert reading.whole is not None
