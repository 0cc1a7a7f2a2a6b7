"""What a finding tells: the user's line, the item, the position of the row, the feeding."""

import pytest
import torch
from torch import nn

import erlangen as er
from erlangen.audit import Inputs


def test_the_line_of_a_watched_function_is_not_our_own():
    GATConv = pytest.importorskip("torch_geometric.nn").GATConv
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    given = Inputs((torch.randn(8, 16), edges), content=["x"])
    expect = er.Graph(edges.flip(0), nodes=8) | er.Identity()
    report = er.audit(GATConv(16, 8), given, expect, feedings=["training"])
    sources = {one.source for one in report.findings}
    assert any(source and source.startswith("conv/gat_conv.py:") for source in sources), sources
    assert not any(source and "watching" in source for source in sources), sources


class Decoder(nn.Module):
    """Absolute positions that count from the first place, whether it is padding or not."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(40, 16), nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, ids, attention_mask):
        n = ids.shape[1]
        x = self.tokens(ids) + self.positions.weight[:n]
        mask = ~(er.Causal().mask(n) & attention_mask.bool()[:, None]) & ~torch.eye(n, dtype=torch.bool)
        return self.layer(x, src_mask=mask.repeat_interleave(2, 0))


def test_padding_on_the_left_that_moves_positions_is_told_by_item_and_reason():
    real = torch.ones(3, 12, dtype=torch.long)
    real[2, :4] = 0
    ids = torch.randint(1, 40, (3, 12))
    report = er.audit(Decoder(), {"ids": ids, "attention_mask": real}, er.Causal(), feedings=["training"])
    (finding,) = [one for one in report.findings if one.kind == "invariance"]
    assert report.verdict == "violated"
    assert (finding.item, finding.feeding) == (2, "given")
    assert "item 2: row" in str(finding)
    assert "position_ids" in str(finding)


def test_the_same_on_the_right_holds():
    real = torch.ones(3, 12, dtype=torch.long)
    real[2, -4:] = 0
    ids = torch.randint(1, 40, (3, 12))
    report = er.audit(Decoder(), {"ids": ids, "attention_mask": real}, er.Causal(), feedings=["training"])
    assert report.verdict == "holds", report
    assert report.obligations[0].state == "held"
