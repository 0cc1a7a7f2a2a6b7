"""Tokens that the model names, and the ends of its vocabulary, are among what is fed."""

import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from erlangen.audit import audit

DIM, SIZE = 16, 200


def tokens(low=1, high=150):
    return torch.randint(low, high, (2, 12), generator=torch.Generator().manual_seed(2))


class Model(nn.Module):
    """Causal attention; where `read` says so, a key is read by every row, and `hide` hides one."""

    def __init__(self, read=None, hide=None, padding_idx=None, **named):
        super().__init__()
        self.table = nn.Embedding(SIZE, DIM, padding_idx=padding_idx)
        self.read, self.hide = read, hide
        for name, value in named.items():
            setattr(self, name, value)

    def forward(self, ids):
        n, x = ids.shape[1], self.table(ids)
        mask = torch.ones(n, n).tril().bool()[None]
        if self.read is not None:
            mask = mask | (ids == self.read)[:, None, :]
        if self.hide is not None:
            mask = mask & ((ids != self.hide)[:, None, :] | torch.eye(n).bool())
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


NAMED = {
    "eos_token_id": (170, {"eos_token_id": 170}),
    "eos_id": (171, {"eos_id": 171}),
    "sep_idx": (172, {"options": {"sep_idx": 172}}),
    "configuration": (173, {"config": types.SimpleNamespace(bos_token_id=[4, 173])}),
    "padding_idx": (174, {"padding_idx": 174}),
    "first": (0, {}),
    "last": (SIZE - 1, {}),
}


def verdict(model, ids):
    return audit(model.eval(), ids, er.Causal(), feedings=["special tokens"])


@pytest.mark.parametrize("name", NAMED)
def test_a_token_that_everybody_reads_is_found(name):
    token, named = NAMED[name]
    assert verdict(Model(token, **named), tokens()).verdict == "violated"
    assert verdict(Model(**named), tokens()).verdict == "holds"


@pytest.mark.parametrize("name", NAMED)
def test_a_token_that_hides_is_no_fault(name):
    token, named = NAMED[name]
    assert verdict(Model(hide=token, **named), tokens()).verdict == "holds"


def test_a_token_that_is_refused_is_left_out():
    class Image(Model):
        def forward(self, ids):
            if bool((ids == 170).any()):
                raise ValueError("no image was given")
            return super().forward(ids)

    named = {"image_token_id": 170, "eos_token_id": 171}
    report = verdict(Image(**named), tokens())
    assert (report.verdict, report.tried["feedings"]) == ("holds", ["given", "special tokens"])
    assert verdict(Image(171, **named), tokens()).verdict == "violated"
