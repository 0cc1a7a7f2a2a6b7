"""S4 has no attention: it learns a signed echo, which no average of the past can be.

The target is u(t - 3) - u(t - 9). The trained model runs as a convolution and as a recurrence with the same
numbers, and the audit says what kind of model it is: no attention, and a flow along the total order.
"""

import argparse

import torch

import erlangen as er
from erlangen.models import S4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a run of a few seconds")
    steps = 20 if parser.parse_args().quick else 400
    torch.manual_seed(0)
    model = S4(S4.Config(features=1, outputs=1, layers=1, width=32, state=16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=steps)
    for step in range(1, steps + 1):
        u = torch.randn(16, 64, 1)
        goal = u.roll(3, 1) - u.roll(9, 1)
        loss = (model(u) - goal)[:, 9:].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % (steps // 4) == 0:
            print(f"step {step}: error {loss.item() / 2:.1%} of the variance")

    model = model.double().eval()
    u = torch.randn(1, 200, 1, dtype=torch.float64)
    with torch.no_grad():
        apart = (model(u) - model(u, mode="recurrence")).abs().max().item()
        kernel = model.blocks[0].s4.kernel(64)
    print(f"convolution and recurrence differ by {apart:.1e}")
    print(f"its kernel has weights from {kernel.min().item():.2f} to {kernel.max().item():.2f}: signed")
    print(f"audit: {er.audit(model, u[:, :16]).without_attention}")


if __name__ == "__main__":
    main()
