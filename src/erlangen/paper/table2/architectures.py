"""The six rows of the paper's Table 2: what is claimed, and the implementations that are measured."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from erlangen.audit.targets import transformers_model
from erlangen.models import BERT, GAT, GPT, T5, Unlimiformer, ViT
from erlangen.paper.table2.measured import Architecture, Implementation

N = 12
"""Length of the sequences; longer than any window that the small models could have."""
DECODER = 9
"""Length of what decoders read, another one, so that the two sequences cannot be mistaken."""
VOCABULARY = 50

Built = tuple[nn.Module, Any]

RING = [(i, (i + 1) % N) for i in range(N)]
BLOCKS = [(j, i) for i in range(N) for j in range(N) if i // 4 == j // 4 and i != j]
"""Two graphs on the same nodes, pairs (source, target): a relation that follows its instance differs."""


def _transformers(name: str, model_type: str) -> Implementation:
    def build() -> Built:
        return transformers_model(model_type, N)

    return Implementation(f"transformers {name}", "transformers", build)


def _own(name: str, build: Callable[[], Built]) -> Implementation:
    return Implementation(f"erlangen {name}", "erlangen", build)


def _seeded() -> torch.Generator:
    torch.manual_seed(0)
    return torch.Generator().manual_seed(0)


def _tokens(length: int = N, seed: int = 0) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(seed))


def _graphs() -> list[dict[str, Any]]:
    x = torch.randn(N, 8, generator=_seeded())
    return [{"x": x, "edge_index": torch.tensor(edges).T} for edges in (RING, BLOCKS)]


def _pyg_gat() -> Built:
    with warnings.catch_warnings():
        # Some of its parts are compiled in a way that newer versions of torch call deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.nn import GAT

    graphs = _graphs()
    return GAT(8, 8, num_layers=2, heads=2).eval(), graphs


def _gat() -> Built:
    graphs = [{"x": one["x"], "graph": one["edge_index"]} for one in _graphs()]
    return GAT(GAT.Config(features=8, classes=3, hidden=4, heads=2)).eval(), graphs


def _bert() -> Built:
    _seeded()
    return BERT(BERT.Config(VOCABULARY, context=N, layers=2, heads=4, width=32)).eval(), (_tokens(),)


def _gpt() -> Built:
    _seeded()
    return GPT(GPT.Config(VOCABULARY, context=N, layers=2, heads=4, width=32)).eval(), (_tokens(),)


def _vit() -> Built:
    generator = _seeded()
    config = ViT.Config(image_size=32, patch_size=8, channels=3, layers=2, heads=4, width=32, classes=10)
    return ViT(config).eval(), (torch.randn(2, 3, 32, 32, generator=generator),)


def _t5() -> Built:
    _seeded()
    return T5(T5.Config(VOCABULARY, layers=2, heads=4, width=32)).eval(), (_tokens(), _tokens(DECODER))


def unlimiformer(k: int = 3) -> Built:
    """An Unlimiformer whose decoder reads the k nearest states, and two texts for it."""
    _seeded()
    config = Unlimiformer.Config(VOCABULARY, chunk=N, context=DECODER, layers=2, heads=4, width=32, k=k)
    instances = [(_tokens(seed=seed), _tokens(DECODER, seed=seed)) for seed in (0, 1)]
    return Unlimiformer(config).eval(), instances


TABLE2 = (
    Architecture(
        "GAT", "graph-based",
        (Implementation("torch_geometric GAT", "torch_geometric", _pyg_gat), _own("GAT", _gat)),
    ),
    Architecture("BERT", "self-attention", (_transformers("BertModel", "bert"), _own("BERT", _bert))),
    Architecture(
        "GPT", "masked",
        (_transformers("OpenAIGPTModel", "openai-gpt"), _transformers("GPT2Model", "gpt2"),
         _own("GPT", _gpt)),
    ),
    Architecture("Unlimiformer", "sparse", (_own("Unlimiformer", unlimiformer),)),
    Architecture("ViT", "strided", (_transformers("ViTModel", "vit"), _own("ViT", _vit))),
    Architecture("T5", "encoder-decoder", (_transformers("T5Model", "t5"), _own("T5", _t5))),
)  # fmt: skip
"""As printed: model and type of attention are the paper's; everything else is measured."""
