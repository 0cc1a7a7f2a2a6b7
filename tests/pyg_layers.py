"""PyG's attention layers and `RelationConv` side by side, in float64, on outputs and all gradients."""

from __future__ import annotations

import torch
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from erlangen.integrations.pyg import RelationConv

LAYERS = {"dot": TransformerConv, "additive": GATConv, "gatv2": GATv2Conv}
N = 12


def random_edges(sources: int = N, targets: int = N, edges: int = 40, seed: int = 0) -> torch.Tensor:
    """Edges without repetition; the last target has none."""
    flat = torch.randperm(sources * (targets - 1), generator=torch.Generator().manual_seed(seed))[:edges]
    return torch.stack([flat % sources, flat // sources])


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def pair(kernel: str, *arguments, **options):
    """A PyG layer with random parameters everywhere, and ours that has loaded its state."""
    torch.manual_seed(0)
    theirs = LAYERS[kernel](*arguments, **options).double()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours = RelationConv(*arguments, kernel=kernel, **options).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def assert_same(theirs, ours, x, *arguments, **keywords):
    """The output, and the gradients of the features of nodes and edges and of all parameters."""
    results = []
    for layer in (theirs, ours):
        leaves = [None if part is None else part.clone().requires_grad_() for part in _parts(x)]
        named = {name: _leaf(value) for name, value in keywords.items()}
        out = layer(leaves[0] if isinstance(x, torch.Tensor) else tuple(leaves), *arguments, **named)
        layer.zero_grad()
        loss = sum((part * randn(*part.shape, seed=n + 1)).sum() for n, part in enumerate(_floats(out)))
        loss.backward()
        gradients = {f"x{n}": leaf.grad for n, leaf in enumerate(leaves) if leaf is not None}
        gradients |= {name: leaf.grad for name, leaf in named.items() if isinstance(leaf, torch.Tensor)}
        gradients |= {name: parameter.grad for name, parameter in layer.named_parameters()}
        results.append(([part.detach() for part in _floats(out)], gradients))
    (out, gradients), (our_out, our_gradients) = results
    torch.testing.assert_close(our_out, out, atol=1e-10, rtol=0)
    assert gradients.keys() == our_gradients.keys()
    for name, gradient in gradients.items():
        # Where PyG leaves a gradient of zero out and we do not, or the other way round, both are zero.
        one, other = (torch.zeros(()) if g is None else g for g in (gradient, our_gradients[name]))
        assert float((other - one).abs().max()) < 1e-10, name


def _parts(x):
    return [x] if isinstance(x, torch.Tensor) else list(x)


def _leaf(value):
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.clone().requires_grad_() if floating else value


def _floats(out):
    """The output, and the attention weights where they were asked for."""
    return [out] if isinstance(out, torch.Tensor) else [out[0], out[1][1]]
