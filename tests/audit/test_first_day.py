"""Inputs that people give on their first day: training batches, shared tensors, packed relations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from typer.testing import CliRunner

import erlangen as er
from erlangen.audit import AtMost, audit
from erlangen.cli import app
from erlangen.testing import assert_relation


class Decoder(nn.Module):
    """A decoder as transformers' are: padding mask, labels of -100, loss and logits."""

    def __init__(self, fault=None, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.fault = nn.Embedding(40, width), nn.Linear(width, 3 * width), fault
        self.head = nn.Linear(width, 40)

    def rows(self, ids, mask=None):
        n, x = ids.shape[1], self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        reads = torch.ones(n, n, dtype=torch.bool).tril(1 if self.fault == "future" else 0)
        if mask is not None and self.fault != "padding":
            reads = reads & mask.bool()[:, None, :]
        return self.head(x + F.scaled_dot_product_attention(q, k, v, attn_mask=reads | torch.eye(n).bool()))

    def forward(self, input_ids, attention_mask=None, labels=None):
        logits = self.rows(input_ids, attention_mask)
        if labels is None:
            return {"logits": logits}
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        return {"loss": loss, "logits": logits}


def batch(padded, items=2):
    ids = torch.randint(1, 40, (items, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    if padded is not None:
        mask[padded, 9:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


@pytest.mark.parametrize("padded", [None, 0, 1])
def test_a_training_batch_with_ignored_labels(padded):
    report = audit(Decoder().eval(), batch(padded), er.Causal())
    assert report.verdict == "holds", report
    assert report.calls
    assert audit(Decoder("future").eval(), batch(padded), er.Causal()).verdict == "violated"


def test_a_batch_of_one_with_labels():
    given = {name: value for name, value in batch(None, items=1).items() if name != "attention_mask"}
    report = audit(Decoder().eval(), given, er.Causal())
    assert report.verdict == "holds", report


def test_padding_read_in_every_item_is_found_in_a_loss():
    given = batch(slice(None))
    assert audit(Decoder().eval(), given, er.Causal()).verdict == "holds"
    left = {"input_ids": given["input_ids"], "attention_mask": given["attention_mask"].flip(1)}
    assert audit(Decoder("padding").eval(), left, er.Causal()).verdict == "violated"


@pytest.mark.parametrize("n", [8, 12])
def test_one_tensor_as_query_key_and_value(n):
    torch.manual_seed(0)
    x = torch.randn(2, n, 16)
    layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    report = audit(layer, (x, x, x), er.Full())
    assert report.verdict == "holds", report
    assert audit(layer, (x, x, x), er.Causal()).verdict == "violated"


class LastRow(nn.Module):
    """nanoGPT without targets: the logits of the last row."""

    def __init__(self, fault=None):
        super().__init__()
        self.body = Decoder(fault, width=24)

    def forward(self, ids):
        return self.body.rows(ids)[:, [-1], :]


@pytest.mark.parametrize("n", [24, 40, 20])
def test_as_many_positions_as_features(n):
    ids = torch.randint(40, (2, n), generator=torch.Generator().manual_seed(2))
    report = audit(LastRow().eval(), ids, er.Causal())
    assert report.verdict == "holds", report
    assert audit(LastRow("future").eval(), ids, er.Causal()).verdict == "violated"
    if n == 24:  # features of one width and positions cannot be told apart at a single length
        report = audit(LastRow("future").eval(), ids, er.Causal(), variants=False, flow=True)
        assert report.verdict != "holds"


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x, relation):
        for layer in self.layers:
            h = layer(x).unflatten(-1, (2, 8)).transpose(1, 2)
            x = x + er.attend(h, h, h, relation).transpose(1, 2).flatten(2)
        return x


@pytest.mark.parametrize("lookback", [1, 2, 3])
def test_packed_relations_are_measured_like_others(lookback):
    x, expect = torch.randn(2, 12, 16), er.Documents([5, 7]) & er.Window(2)
    relation = er.Documents([5, 7]) & er.Window(lookback)
    for given in (relation, er.pack(relation, 12)):
        report = audit(Packed().eval(), (x, given), expect)
        assert report.verdict == ("holds" if lookback == 2 else "violated"), report
        assert len(report.calls) == 2


def test_packed_families_are_measured_like_others():
    x = torch.randn(2, 12, 16)
    heads, items = er.PerHead([er.Causal(), er.Window(2)]), er.Batch([er.Causal(), er.Window(1)])
    assert audit(Packed().eval(), (x, er.pack(heads, 12)), heads, feedings=["training"]).verdict == "holds"
    report = audit(Packed().eval(), (x, er.pack(items, 12)), er.Causal(), feedings=["training"])
    assert report.verdict == "violated"
    with pytest.raises(AssertionError, match="Window"):
        assert_relation(Packed().eval(), (x, er.pack(er.Window(2), 12)), er.Window(5))


def test_a_call_that_could_not_be_measured_is_open(monkeypatch):
    from erlangen.audit.apis import attend

    def broken(*_):
        raise AttributeError("a fault of the audit's own")

    monkeypatch.setattr(attend, "unpacked", broken)
    report = audit(Packed().eval(), (torch.randn(2, 12, 16), er.Window(2)), er.Causal())
    assert report.verdict != "holds"


def test_inputs_that_only_the_fast_path_takes_end_no_audit():
    torch.manual_seed(0)
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1).eval()
    given = {"tgt": torch.randn(2, 6, 16), "memory": torch.randn(2, 7, 16), "tgt_is_causal": True}
    report = audit(model, given, {"*.self_attn": er.Causal(), "*.multihead_attn": er.Full()})
    assert report.verdict in ("violated", "undecided", "holds")


class Shifted(nn.Module):
    """A language model that cuts its input, or puts a token before it."""

    def __init__(self, cut, ahead):
        super().__init__()
        torch.manual_seed(0)
        self.cut, self.ahead, self.start = cut, ahead, nn.Parameter(torch.randn(1, 1, 16))
        self.conv = nn.Conv1d(16, 16, 3, padding=1 if ahead else 0)

    def forward(self, x):
        x = {
            "last": x[:, :-1],
            "first": x[:, 1:],
            "begin": torch.cat([self.start.expand(len(x), 1, 16), x], 1),
        }[self.cut]
        h = x.mT if self.ahead else F.pad(x.mT, (2, 0))
        return 2 * x + 0.2 * self.conv(h).mT


@pytest.mark.parametrize("cut", ["last", "first", "begin"])
def test_rows_that_are_moved_by_a_place(cut):
    x = torch.randn(2, 12, 16)
    assert audit(Shifted(cut, False).eval(), x, AtMost(er.Causal())).verdict == "holds"
    assert audit(Shifted(cut, True).eval(), x, AtMost(er.Causal())).verdict == "violated"


class Silent(nn.Module):
    """A head of zeros hides what is read before it."""

    def __init__(self, ahead):
        super().__init__()
        self.body, self.head = Shifted("last", ahead), nn.Linear(16, 8)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(self.body(F.pad(x, (0, 0, 0, 1))))


def test_a_head_of_zeros_hides_nothing():
    x = torch.randn(2, 12, 16)
    assert audit(Silent(True).eval(), x, er.Causal()).verdict == "violated"
    assert audit(Silent(False).eval(), x, AtMost(er.Causal())).verdict != "violated"


class Scorer(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.head, self.fault = nn.Linear(16, 1), fault

    def forward(self, x, labels):
        logits = self.head(x.mean(1))
        return {"logits": logits + 0.1 * labels.float().mean(1, keepdim=True) if self.fault else logits}


@pytest.mark.parametrize("fault", [False, True])
def test_one_logit_for_each_item_may_not_read_labels(fault):
    given = {"x": torch.randn(3, 6, 16), "labels": torch.randint(5, (3, 6))}
    verdict = audit(Scorer(fault).eval(), given, AtMost(er.Full())).verdict
    assert verdict == ("undecided" if fault else "holds")


class LateItem(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def forward(self, x):
        return torch.cat([x[:1] + x[-1:].mean(), x[1:]]) if self.fault and len(x) > 8 else 2 * x


@pytest.mark.parametrize("fault", [False, True])
def test_every_item_of_a_batch_is_changed(fault):
    report = audit(LateItem(fault).eval(), torch.randn(10, 5, 4), AtMost(er.Causal()))
    assert report.verdict == ("violated" if fault else "holds")


@pytest.mark.parametrize("name", ["composition", "grid_codes", "shape_ids", "size_bucket"])
def test_names_that_contain_a_word_are_content(name):
    class Beside(nn.Module):
        def __init__(self, ahead):
            super().__init__()
            self.embed, self.ahead = nn.Embedding(40, 8), ahead

        def forward(self, ids, **others):
            beside = self.embed(others[name])
            return self.embed(ids) + (beside.flip(1) if self.ahead else beside)

    given = {"ids": torch.randint(40, (2, 8)), name: torch.randint(40, (2, 8))}
    torch.manual_seed(0)
    assert audit(Beside(True).eval(), given, AtMost(er.Causal())).verdict != "holds"
    assert audit(Beside(False).eval(), given, AtMost(er.Causal())).verdict != "violated"


def test_a_model_that_ends_the_process_has_no_verdict(tmp_path):
    (tmp_path / "ends.py").write_text(
        "import sys, torch\n"
        "class Ends(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        sys.exit(0)\n"
        "def build():\n"
        "    return Ends(), torch.zeros(2, 6, 4)\n"
    )
    result = CliRunner().invoke(app, ["audit", f"{tmp_path}/ends.py:build", "--expect", "Causal()"])
    assert result.exit_code == 2
    assert "ends the process" in result.output


class Branches(nn.Module):
    """Two branches of hidden attention, pooled and added; the order must not matter."""

    class Hidden(nn.Module):
        def __init__(self, causal):
            super().__init__()
            self.qkv, self.causal = nn.Linear(16, 48), causal

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            e = torch.exp(q @ k.mT / 4)
            e = e.tril() if self.causal else e
            return x + (e / e.sum(-1, keepdim=True)) @ v

    def __init__(self, *causal):
        super().__init__()
        torch.manual_seed(0)
        self.branches = nn.ModuleList(map(Branches.Hidden, causal))

    def forward(self, x):
        return sum(branch(x).mean(1) for branch in self.branches)


@pytest.mark.parametrize("causal", [(False, True), (True, False), (True, True)])
def test_every_branch_before_a_pooled_output_counts(causal):
    verdict = audit(Branches(*causal).eval(), torch.randn(2, 12, 16), er.Causal()).verdict
    assert (verdict == "holds") == all(causal)
