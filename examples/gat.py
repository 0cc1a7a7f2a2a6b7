"""A GAT tells the communities of a graph, and does worse when it is not shown the edges.

Every node reads its neighbours and itself: the relation is graph | Identity(). With --data FOLDER it learns
the subjects of Cora's documents by the published recipe, from Planetoid's raw files there; PyG downloads
them where they are missing.
"""

import argparse
from pathlib import Path

import torch
from torch.nn import functional as F

import erlangen as er
from erlangen.models import GAT


def communities(nodes: int, kinds: int) -> tuple[torch.Tensor, torch.Tensor, er.Graph]:
    """Features that hardly tell the community, and a graph that mostly stays within it."""
    y = torch.arange(nodes) % kinds
    x = F.one_hot(y, kinds) + 1.5 * torch.randn(nodes, kinds)
    near = torch.where(y[:, None] == y, 8 / nodes, 0.5 / nodes) * kinds
    drawn = (torch.rand(nodes, nodes) < near).triu(1)
    return x, y, er.Graph((drawn | drawn.T).nonzero().tolist(), nodes=nodes)


def learn(x: torch.Tensor, y: torch.Tensor, graph: er.Relation, steps: int) -> float:
    """Train on a tenth of the nodes; the share of the others that is told rightly."""
    torch.manual_seed(0)
    model = GAT(GAT.Config(features=x.shape[1], classes=int(y.max()) + 1, dropout=0.2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    known = torch.arange(len(y)) < len(y) // 10
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x, graph)[known], y[known]).backward()
        optimizer.step()
    with torch.no_grad():
        right = model.eval()(x, graph).argmax(-1) == y
    return right[~known].float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a folder with Planetoid's files, or for them")
    parser.add_argument("--dataset", default="Cora", help="Cora, Citeseer or PubMed")
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    options = parser.parse_args()
    if options.data:
        from erlangen.training import GATRecipe, planetoid, train
        from erlangen.training.gat import gat_run, rightly_classified

        data = planetoid.load(options.dataset, options.data)
        run = gat_run(data, GATRecipe())
        history = train(run)
        print(
            f"{data.name}: {rightly_classified(run.model, data):.1%} of the test after {history.step} steps"
        )
        return

    nodes, steps = (120, 30) if options.quick else (600, 150)
    torch.manual_seed(0)
    x, y, graph = communities(nodes, kinds=4)
    print(f"{graph}: {learn(x, y, graph, steps):.0%} of the nodes told rightly")
    print(f"without its edges, {er.Identity()}: {learn(x, y, er.Identity(), steps):.0%}")


if __name__ == "__main__":
    main()
