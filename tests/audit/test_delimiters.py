"""Documents that are delimited by a token among the ids: what delimits is structure, and no content."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er

END = 0
LENGTHS = (5, 7)
PACKED = er.Documents(LENGTHS)


class Packed(nn.Module):
    """Attention within the documents that an end of sequence closes, with the faults of such models."""

    def __init__(self, fault: str = "", causal: bool = True, style: str = "seen") -> None:
        super().__init__()
        self.embed, self.qkv = nn.Embedding(20, 16), nn.Linear(16, 48)
        self.fault, self.causal, self.style = fault, causal, style

    def forward(self, ids):
        n, end = ids.shape[1], (ids == END).long()
        document = end.cumsum(1) - end
        mask = document[:, :, None] == document[:, None]
        if self.fault == "no documents":
            mask = torch.ones_like(mask)
        if self.causal:
            mask = mask & torch.ones(n, n, dtype=torch.bool).tril()
        x = F.embedding(ids, self.embed.weight) if self.style == "without a module" else self.embed(ids)
        if self.fault == "shift":  # a token of each row comes from the one before, whatever its document
            x = x + F.pad(x, (0, 0, 1, -1))
        if self.fault == "counted":  # every row knows of ends to come
            x = x + end.sum(1)[:, None, None]
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.style == "hidden":
            weights = (q @ k.mT / 4).exp() * mask
            return x + torch.einsum("bij,bjd->bid", weights / weights.sum(-1, keepdim=True), v)
        return x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def audited(model, n=12, at=4, expect=None, feedings=("training", "autocast")):
    torch.manual_seed(0)
    ids = torch.randint(1, 20, (2, n))
    ids[:, at] = END
    documents = er.Documents([at + 1, n - at - 1])
    expect = expect or (documents & er.Causal() if model.causal else documents)
    return er.audit(model, ids, expect, feedings=feedings)


@pytest.mark.parametrize("causal", [True, False])
def test_a_token_that_delimits_is_no_content(causal):
    torch.manual_seed(0)
    report = audited(Packed(causal=causal))
    assert report.verdict == "holds", report
    assert any("the token 0 decides which keys are read" in text for text in report.all_warnings())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("fault", ["no documents", "shift", "counted"])
def test_what_is_read_across_documents_is_found(fault, causal):
    torch.manual_seed(0)
    report = audited(Packed(fault, causal))
    assert report.verdict == "violated", report


def test_what_stands_at_the_delimiter_is_content():
    """Rows of the next document read the end of the one before: nothing else is shifted across."""

    class Across(Packed):
        def forward(self, ids):
            before = F.pad(ids == END, (1, -1), value=False)
            x = F.pad(self.embed(ids), (0, 0, 1, -1)) * before[..., None]
            return super().forward(ids) + x

    torch.manual_seed(0)
    report = audited(Across())
    assert report.verdict == "violated", report
    assert (report.findings[0].query, report.findings[0].key) == (5, 4)


@pytest.mark.parametrize("fault", ["", "shift"])
def test_long_sequences_of_which_groups_are_changed(fault):
    torch.manual_seed(0)
    report = audited(Packed(fault, causal=False), n=40, at=19)
    assert report.verdict == ("violated" if fault else "holds"), report


def test_documents_of_each_item():
    torch.manual_seed(0)
    model, ids = Packed(), torch.randint(1, 20, (2, 12))
    ids[0, 4] = ids[1, 7] = END
    expect = er.Batch([er.Documents([5, 7]) & er.Causal(), er.Documents([8, 4]) & er.Causal()])
    report = er.audit(model, ids, expect, feedings=["training"])
    assert report.verdict == "holds", report


def test_without_a_module_that_embeds_it_is_open():
    torch.manual_seed(0)
    report = audited(Packed(style="without a module"))
    assert report.verdict == "undecided", report
    assert any("no module embeds it" in str(one) for one in report.open), report.open


@pytest.mark.parametrize("named", [True, False])
def test_where_attention_is_not_seen_only_a_name_tells(named):
    torch.manual_seed(0)
    model = Packed(style="hidden")
    if named:
        model.eos_token_id = END
    report = audited(model)
    assert report.verdict == ("undecided" if named else "violated"), report
    faulty = Packed("shift", style="hidden")
    if named:
        faulty.eos_token_id = END
    assert audited(faulty).verdict == "violated"


class BySize(Packed):
    """Each token decides by its size who reads it: none of them delimits."""

    def forward(self, ids):
        x, n = self.embed(ids), ids.shape[1]
        mask = (ids[:, :, None] >= ids[:, None]) & torch.ones(n, n, dtype=torch.bool).tril()
        mask = mask | torch.eye(n, dtype=torch.bool)
        return x + F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1), attn_mask=mask)


def test_masks_that_all_content_decides_are_no_documents():
    torch.manual_seed(0)
    assert audited(BySize()).verdict == "violated"


def test_without_documents_a_delimiter_is_a_token_like_others():
    torch.manual_seed(0)
    assert audited(Packed(), expect=er.audit.AtMost(er.Causal())).verdict == "holds"
    assert audited(Packed("counted"), expect=er.audit.AtMost(er.Causal())).verdict == "violated"
