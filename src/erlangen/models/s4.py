"""S4 with a diagonal state (S4D): a state space model, which is no attention.

    relation    none. The layer is a *signed* causal convolution, y_i = sum over j <= i of K_{i-j} u_j with a
                fixed kernel K: information flows along the total order j <= i, but nothing is averaged. The
                weights may be negative, they do not sum to 1, and they do not depend on the data

    x'(t) = A x(t) + B u(t),  y(t) = C x(t) + D u(t)          for each channel, A diagonal and complex
    zero-order hold, step h:   Abar = e^{hA},   Bbar = (Abar - 1) / A
    recurrence                 x_i = Abar x_{i-1} + Bbar u_i,   y_i = 2 Re(C x_i) + D u_i
    convolution                K_l = 2 Re(C Abar^l Bbar),       y = K * u + D u

Both modes are the same map: the first decodes step by step, the second trains in O(n log n). States come in
conjugate pairs, of which one is kept: hence 2 Re. S4D-Lin starts at A_s = -1/2 + i pi s.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import final

import torch
from torch import Tensor, nn

from erlangen.errors import ParameterError, ShapeError
from erlangen.models import checks
from erlangen.models.saved import Saved
from erlangen.relations import sizes


@dataclass(frozen=True)
class S4Config:
    """Sizes of an S4: `layers` blocks on `width` channels, each channel with `state` complex states.

    >>> S4Config(features=1, outputs=1, layers=2, width=16).state
    32
    """

    features: int
    outputs: int
    layers: int
    width: int
    state: int = 32
    dropout: float = 0.0

    def __post_init__(self) -> None:
        checks.fractions(self, "S4")
        checks.counts(self, "S4", "features", "outputs", "layers", "width", "state")


class S4Layer(nn.Module):
    """The diagonal state space model on `width` channels, in both of its modes.

    `forward` convolves with the kernel, `scan` runs the recurrence, `step` runs one step of it.

    >>> import torch
    >>> layer = S4Layer(4).double()
    >>> u = torch.randn(2, 50, 4, dtype=torch.float64)
    >>> bool((layer(u) - layer.scan(u)).abs().max() < 1e-10)
    True
    >>> bool((layer.kernel(50) < 0).any())           # signed: no softmax gives such weights
    True
    """

    def __init__(self, width: int, state: int = 32) -> None:
        super().__init__()
        width = sizes.count(width, "S4Layer(width)", least=1)
        state = sizes.count(state, "S4Layer(state)", least=1)
        # Steps between 1/1000 and 1/10: channels that remember long and short.
        self.log_step = nn.Parameter(torch.empty(width).uniform_(log(1e-3), log(1e-1)))
        self.log_decay = nn.Parameter(torch.full((width, state), 0.5).log())
        self.frequency = nn.Parameter((pi * torch.arange(state)).expand(width, state).clone())
        self.C = nn.Parameter(torch.randn(width, state, 2) / 2**0.5)
        self.D = nn.Parameter(torch.randn(width))

    def discrete(self) -> tuple[Tensor, Tensor]:
        """(Abar, C Bbar) by zero-order hold, complex, of shape (width, state).

        >>> decay, _ = S4Layer(4).discrete()
        >>> bool((decay.abs() < 1).all())                # stable, whatever is learned: Re A = -e^(...) < 0
        True
        """
        a = torch.complex(-self.log_decay.exp(), self.frequency)
        decay = (self.log_step.exp()[:, None] * a).exp()
        return decay, torch.view_as_complex(self.C) * (decay - 1) / a

    def kernel(self, length: int) -> Tensor:
        """K_0 .. K_{length - 1} of every channel, (width, length), without D."""
        decay, read = self.discrete()
        powers = decay[..., None] ** torch.arange(length, device=decay.device)
        return 2 * torch.einsum("cs,csl->cl", read, powers).real

    def forward(self, u: Tensor) -> Tensor:
        """`u` (..., n, width) -> the same shape, by convolution."""
        self._check(u)
        n = u.shape[-2]
        signal = u.transpose(-1, -2)
        # Twice the length, so that the end of the kernel does not come around to the beginning.
        spectrum = torch.fft.rfft(signal, n=2 * n) * torch.fft.rfft(self.kernel(n), n=2 * n)
        y = torch.fft.irfft(spectrum, n=2 * n)[..., :n]
        return y.transpose(-1, -2) + self.D * u

    def scan(self, u: Tensor) -> Tensor:
        """`u` (..., n, width) -> the same shape, by the recurrence."""
        self._check(u)
        state, rows = None, []
        for row in u.unbind(-2):
            y, state = self.step(row, state)
            rows.append(y)
        return torch.stack(rows, dim=-2)

    def step(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One step: inputs (..., width) and the state so far -> outputs (..., width) and the next state.

        The state (..., width, state) has the size of the layer, however long the past.
        """
        decay, read = self.discrete()
        # The state without its constant factor Bbar, which is read together with C.
        kept = 0 if state is None else decay * state
        state = kept + u[..., None].to(decay.dtype)
        return 2 * (read * state).sum(-1).real + self.D * u, state

    def _check(self, u: Tensor) -> None:
        if u.dim() < 2 or u.shape[-1] != len(self.D) or u.shape[-2] == 0:
            raise ShapeError(f"S4Layer takes (..., n, {len(self.D)}) with n >= 1, got {tuple(u.shape)}")


class Block(nn.Module):
    """x + mix(gelu(s4(norm(x)))): over time by the state space, over channels by a gated linear map."""

    def __init__(self, config: S4Config) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.s4 = S4Layer(config.width, config.state)
        self.mix = nn.Linear(config.width, 2 * config.width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mode: str) -> Tensor:
        y = self.s4.scan(self.norm(x)) if mode == "recurrence" else self.s4(self.norm(x))
        y = nn.functional.glu(self.mix(nn.functional.gelu(y)), dim=-1)
        return x + self.dropout(y)


@final
class S4(Saved):
    """A sequence model without attention: (batch, n, features) -> (batch, n, outputs).

    Row i of the outputs depends on rows 0 .. i alone.

    >>> import torch
    >>> model = S4(S4.Config(features=1, outputs=2, layers=2, width=8)).double().eval()
    >>> u = torch.randn(3, 20, 1, dtype=torch.float64)
    >>> model(u).shape, bool((model(u) - model(u, mode="recurrence")).abs().max() < 1e-10)
    (torch.Size([3, 20, 2]), True)
    >>> model.relation is None
    True
    """

    Config = S4Config

    def __init__(self, config: S4Config) -> None:
        super().__init__(config)
        self.encoder = nn.Linear(config.features, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.decoder = nn.Linear(config.width, config.outputs)

    @property
    def relation(self) -> None:
        """None: S4 has no attention. What its outputs depend on is the total order, `Causal()`."""
        return None

    def forward(self, u: Tensor, mode: str = "convolution") -> Tensor:
        """`mode` is "convolution" (all positions at once) or "recurrence" (one after another)."""
        if mode not in ("convolution", "recurrence"):
            raise ParameterError(f'S4 runs in mode "convolution" or "recurrence", got {mode!r}')
        if u.dim() not in (2, 3) or u.shape[-1] != self.config.features or u.shape[-2] == 0:
            raise ShapeError(
                f"S4 takes (n, {self.config.features}) or (batch, n, {self.config.features}) with n >= 1, "
                f"got {tuple(u.shape)}"
            )
        x = self.encoder(u)
        for block in self.blocks:
            x = block(x, mode)
        return self.decoder(self.norm(x))
