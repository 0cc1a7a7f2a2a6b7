"""Bahdanau attention: a recurrent encoder-decoder that learns to align what it writes with what it read.

    relation    Full() from each written position to all read ones: the complete bipartite relation Y x X
                (Definition 6), one decoder position at a time; Padding(length) where a source is shorter

    h_j       = [forward GRU; backward GRU] of the source, j = 0 .. m - 1
    alpha_tj  = softmax over j of <v, tanh(W s_{t-1} + U h_j)>        the additive kernel
    c_t       = sum over j of alpha_tj h_j
    s_t       = GRU([target_{t-1}, c_t], s_{t-1})
    logits_t  = output([s_t, c_t])

The weights alpha, one row per written token, are the alignment. On a copy task they become the diagonal, on
reversal the antidiagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from erlangen.attention import attend
from erlangen.attention.kernels import Additive
from erlangen.errors import ParameterError, ShapeError
from erlangen.models import checks
from erlangen.models.saved import Saved
from erlangen.relations import Batch, Bindable, Full, Padding, sizes

RELATION = Full()
"""Every written position reads every source position."""


@dataclass(frozen=True)
class BahdanauConfig:
    """Sizes: `source_vocab` tokens are read, `target_vocab` written; states and attention have `width`.

    >>> BahdanauConfig(source_vocab=10, target_vocab=10).width
    64
    """

    source_vocab: int
    target_vocab: int
    width: int = 64

    def __post_init__(self) -> None:
        checks.counts(self, "Bahdanau", "source_vocab", "target_vocab", "width")


@final
class Bahdanau(Saved):
    """Sequence to sequence: source ids (batch, m), target ids (batch, t) -> logits (batch, t, target_vocab).

    Row i of the logits scores target i, given the source and targets before i. `lengths` tells the real
    length of each source where they differ; what is beyond is neither read nor attended to.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = Bahdanau(Bahdanau.Config(source_vocab=5, target_vocab=5, width=8))
    >>> source, target = torch.randint(0, 5, (2, 6)), torch.randint(0, 5, (2, 4))
    >>> logits, weights = model(source, target, need_weights=True)
    >>> logits.shape, weights.shape, bool((weights.sum(-1) - 1).abs().max() < 1e-5)
    (torch.Size([2, 4, 5]), torch.Size([2, 4, 6]), True)
    """

    Config = BahdanauConfig

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        width = config.width
        self.read = nn.Embedding(config.source_vocab, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        # One token more than can be written: the beginning.
        self.written = nn.Embedding(config.target_vocab + 1, width)
        self.bridge = nn.Linear(width, width)
        self.W = nn.Linear(width, width, bias=False)
        self.U = nn.Linear(2 * width, width)
        self.v = nn.Parameter(3 * torch.randn(width) / width**0.5)  # scores of order 3: weights differ early
        self.decoder = nn.GRUCell(3 * width, width)
        self.output = nn.Linear(3 * width, config.target_vocab)
        self._initialise()

    def _initialise(self) -> None:
        """Orthogonal recurrences, and an encoder that starts forgetful.

        A state that carries its neighbours' tokens lets the decoder look beside the token it writes. With
        the update gates closed at first, h_j tells of token j alone, and looking there is learned first.
        """
        width = self.config.width
        with torch.no_grad():
            for name, parameter in [*self.encoder.named_parameters(), *self.decoder.named_parameters()]:
                if name.startswith("weight_hh"):
                    for gate in parameter.chunk(3):
                        nn.init.orthogonal_(gate)
            for name, parameter in self.encoder.named_parameters():
                if name.startswith("bias_ih"):
                    parameter[width : 2 * width] = -4.0

    @property
    def relation(self) -> Full:
        """Which source positions a written position reads."""
        return RELATION

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        lengths: Sequence[int] | None = None,
        *,
        need_weights: bool = False,
    ) -> Any:
        """Logits of every target token, given the true ones before it; with the weights (batch, t, m)."""
        if target.dim() != 2 or target.shape[0] != source.shape[0]:
            raise ShapeError(
                f"Bahdanau takes source (batch, m) and target (batch, t), got {tuple(source.shape)} and "
                f"{tuple(target.shape)}"
            )
        first = target.new_full((target.shape[0], 1), self.config.target_vocab)
        given = torch.cat([first, target[:, :-1]], dim=1)
        return self._write(source, lengths, target.shape[1], given, need_weights)

    @torch.no_grad()
    def generate(
        self, source: Tensor, new_tokens: int, lengths: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The likeliest `new_tokens` tokens in turn, (batch, t), and their alignment (batch, t, m)."""
        new_tokens = sizes.count(new_tokens, "generate(new_tokens)", least=1)
        logits, weights = self._write(source, lengths, new_tokens, None, True)
        return logits.argmax(-1), weights

    def _write(
        self, source: Tensor, lengths: Sequence[int] | None, steps: int, given: Tensor | None, weighed: bool
    ) -> Any:
        """`steps` decoder steps; each is given its token, or else the likeliest one of the step before."""
        relation = self._check(source, lengths)
        h, state = self._encode(source, lengths)
        keys, values = self.U(h).unsqueeze(1), h.unsqueeze(1)
        kernel = Additive(vector=self.v, activation="tanh")
        token = source.new_full(source.shape[:1], self.config.target_vocab)
        logits, rows = [], []
        for t in range(steps):
            token = token if given is None else given[:, t]
            query = self.W(state)[:, None, None]
            found = attend(query, keys, values, relation, kernel=kernel, return_weights=weighed)
            out, alpha = found if weighed else (found, None)
            context = out[:, 0, 0]
            state = self.decoder(torch.cat([self.written(token), context], dim=-1), state)
            logits.append(self.output(torch.cat([state, context], dim=-1)))
            rows.append(alpha)
            token = logits[-1].argmax(-1)
        written = torch.stack(logits, dim=1)
        return (written, torch.cat(rows, dim=2)[:, 0]) if weighed else written

    def _encode(self, source: Tensor, lengths: Sequence[int] | None) -> tuple[Tensor, Tensor]:
        """The states h (batch, m, 2 width) of the source, and the first state of the decoder."""
        x = self.read(source)
        if lengths is None:
            h, last = self.encoder(x)
        else:
            packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
            states, last = self.encoder(packed)
            h, _ = pad_packed_sequence(states, batch_first=True, total_length=source.shape[1])
        return h, self.bridge(last[1]).tanh()  # the backward GRU ends at the first token

    def _check(self, source: Tensor, lengths: Sequence[int] | None) -> Bindable:
        """The relation of one decoder position to this source, or an error that says what is wrong."""
        if source.dim() != 2 or source.shape[1] == 0:
            raise ShapeError(f"Bahdanau reads ids of shape (batch, m) with m >= 1, got {tuple(source.shape)}")
        if lengths is None:
            return RELATION
        listed = [sizes.count(length, "Bahdanau(lengths)", least=1) for length in lengths]
        if len(listed) != source.shape[0] or max(listed) > source.shape[1]:
            raise ParameterError(
                f"lengths must tell one of 1 .. {source.shape[1]} for each of {source.shape[0]} sources, "
                f"got {listed}"
            )
        return Batch([Padding(length) for length in listed])
