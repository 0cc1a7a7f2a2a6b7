"""A convolution is attention with one head for each offset, exactly; one softmax head cannot be one.

The layer is built from a real convolution of PyTorch and compared with it; then a single head is trained to
take differences of neighbours, and fails: it averages, and an average keeps constants.
"""

import argparse

import torch
from torch import nn

import erlangen as er
from erlangen.nn import ConvolutionAttention


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    steps = 60 if parser.parse_args().quick else 600
    torch.manual_seed(0)

    for conv, x in (
        (nn.Conv1d(3, 4, kernel_size=3, padding=1), torch.randn(2, 3, 8)),
        (nn.Conv2d(4, 2, (3, 2), dilation=2, padding="same", groups=2), torch.randn(4, 6, 6)),
    ):
        conv, x = conv.double(), x.double()
        layer = ConvolutionAttention.from_conv(conv)
        heads = layer.relation(*x.shape[-len(conv.kernel_size) :])
        print(f"{conv}\n  {len(heads)} heads: {heads[0]}, {heads[1]}, ...")
        print(f"  largest difference {(layer(x) - conv(x)).abs().max().item():.1e}")

    circle = er.PerHead([er.Ring(1, 0) - er.Identity(), er.Identity(), er.Ring(0, 1) - er.Identity()])
    cut = er.PerHead([er.Offset(-1), er.Offset(0), er.Offset(1)])
    print(
        f"on a circle of 8 its symmetry is {er.symmetry(circle, 8)}; with zero padding {er.symmetry(cut, 8)}"
    )

    x = torch.randn(256, 8, 1)
    goal = x - x.roll(1, 1)
    head = er.Attention(1, relation=er.Ring(lookback=1, lookahead=0))
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = (head(x) - goal).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    two = ConvolutionAttention(nn.Conv1d(1, 1, 2, padding=1, bias=False))
    with torch.no_grad():
        two.weight.copy_(torch.tensor([[[-1.0]], [[1.0]]]))
        inner = (two(x.mT)[..., 1:-1] - goal.mT[..., 1:]).abs().max()
    print(f"x_i - x_(i-1), by one softmax head: error {loss.item() / goal.var().item():.0%} of the variance")
    print(f"by two heads of one offset each: error {inner.item():.0%}")


if __name__ == "__main__":
    main()
