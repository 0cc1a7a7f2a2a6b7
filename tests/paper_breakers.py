"""Attention and relations broken on purpose, and the items of the paper that must notice each of them."""

from __future__ import annotations

import numpy as np
import torch

from erlangen.attention import attend
from erlangen.relations import Bipartite, Causal, Full, Neighborhoods, Window


def broken_attend(change):
    def broken(q, k, v, relation=None, **options):
        return change(q, k, v, Full() if relation is None else relation, options)

    return broken


def filled_with_minus_1e9(q, k, v, relation, options):
    """Dense attention whose masked scores are -1e9, as in the appendix: empty rows become uniform."""
    from erlangen.relations import Batch

    members = relation.members if isinstance(relation, Batch) else [relation]
    n, m = q.shape[-2], k.shape[-2]
    masks = np.stack([(r if isinstance(r, Neighborhoods) else r.on(n, m)).dense() for r in members])
    mask = torch.from_numpy(masks)[:, None] if len(members) > 1 else torch.from_numpy(masks[0])
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9)
    weights = scores.softmax(-1)
    out = weights @ v
    return (out, weights) if options.get("return_weights") else out


ATTEND = {
    "the -1e9 fill": (
        filled_with_minus_1e9,
        {"Definition 9", "Definition 10", "Proposition 1", "Lemma 1", "Theorem 2", "Code B.5"},
    ),
    "Q and K exchanged": (
        lambda q, k, v, r, o: attend(k, q, v, r, **o) if q.shape == k.shape else attend(q, k, v, r, **o),
        {"Definition 5", "Definition 7", "Definition 8", "Definition 9", "Code B.1", "Code B.2", "Code B.4"},
    ),
    "no scaling": (
        lambda q, k, v, r, o: attend(q, k, v, r, scale=1.0, **o),
        {"Definition 5", "Definition 6", "attention is a graph layer", "Code B.1", "Code B.3", "Code B.5"},
    ),
    "every relation full": (
        lambda q, k, v, r, o: attend(q, k, v, Full(), **o),
        {
            "Definition 1",
            "Definition 7",
            "Definition 8",
            "Lemma 1",
            "Theorem 2",
            "Theorem 3",
            "Theorem 4",
            "Theorem 6",
            "Definition 2",
            "Definition 3",
            "Figure 2",
            "Figure 3",
            "Figure 4",
        },
    ),
    "values summed, not averaged": (
        lambda q, k, v, r, o: (
            tuple(x * q.shape[-2] for x in attend(q, k, v, r, **o))
            if o.get("return_weights")
            else attend(q, k, v, r, **o) * q.shape[-2]
        ),
        {"Definition 10", "Proposition 1", "Theorem 6", "Code B.1", "Section 3.2: S4"},
    ),
}


def window_off_by_one(self, site):
    return Neighborhoods.from_bands(
        site.keys, site.positions - (self.lookback + 1), site.positions + (self.lookahead + 1)
    )


def window_too_short(self, site):
    return Neighborhoods.from_bands(
        site.keys, site.positions - max(self.lookback - 1, 0), site.positions + (self.lookahead + 1)
    )


def transposed_block(self, site):
    low = np.where(site.positions < self.encoder, self.encoder, 0)
    high = np.where(site.positions < self.encoder, site.keys, 0)
    return Neighborhoods.from_bands(site.keys, low, high)


def both_blocks(self, site):
    encoder = site.positions < self.encoder
    low, high = np.where(encoder, self.encoder, 0), np.where(encoder, site.keys, self.encoder)
    return Neighborhoods.from_bands(site.keys, low, high)


def leaking_causal(self, site):
    return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), site.positions + 2)


def strict_causal(self, site):
    return Neighborhoods.from_bands(site.keys, np.zeros_like(site.positions), site.positions)


BOUND = {
    "a window one too long": (
        Window,
        window_off_by_one,
        {"Definition 8", "Theorem 4", "Theorem 7", "Corollary 1", "Code B.4", "Table 1"},
    ),
    "a window one too short": (
        Window,
        window_too_short,
        {"Definition 8", "Theorem 4", "Theorem 7", "Corollary 1", "Code B.4", "Table 1"},
    ),
    "a transposed bipartite block": (Bipartite, transposed_block, {"Theorem 2", "Table 1"}),
    "both bipartite blocks": (Bipartite, both_blocks, {"Theorem 2", "Theorem 8", "Table 1", "Table 2"}),
    "a causal mask that leaks": (
        Causal,
        leaking_causal,
        {
            "Definition 7",
            "Theorem 3",
            "Theorem 6",
            "Corollary 1",
            "Code B.2",
            "Table 1",
            "Table 2",
        },
    ),
    "a causal mask without its diagonal": (
        Causal,
        strict_causal,
        {"Definition 7", "Theorem 3", "Corollary 1", "Code B.2", "Table 1", "Table 2"},
    ),
    "a full relation that is causal": (
        Full,
        lambda self, site: Causal()._bind(site),
        {
            *{"Definition 5", "Definition 6", "Theorem 1", "Theorem 5", "Code B.1", "Table 1", "Table 2"},
            *{"Figure 1", "Appendix A.1", "Footnote 4"},
        },
    ),
}
