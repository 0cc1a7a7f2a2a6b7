"""The HTML report: self-contained, escaped, grouped, and it shows the edge that breaks the expectation."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from torch import nn

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import audit
from erlangen.audit.page import ranges, render
from erlangen.show.svg import CELLS, picture

N = 8
CAUSAL = er.Causal()
VOID = {"meta", "br", "rect", "path", "circle", "image"}


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)


def leaky():
    hole = er.FromMask(CAUSAL.on(N).dense() | (np.arange(N * N).reshape(N, N) == 2 * N + 5))
    return stack([[CAUSAL, CAUSAL], [CAUSAL, hole]], N)


def test_the_broken_edge_is_shown_and_ringed(tmp_path):
    report = audit(leaky(), vectors(N), CAUSAL)
    page = report.save(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "violated" in page
    assert "layers.1.attention" in page
    assert "edge (2, 5)" in page
    assert '<circle cx="5.5" cy="2.5"' in page
    assert 'd="M5 2h1v1h-1z" class="extra"' in page
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


def test_a_model_that_holds_has_no_ring():
    page = render(audit(stack([[CAUSAL]], N), vectors(N), CAUSAL))
    assert "<circle" not in page
    assert "What is wrong" not in page
    assert "holds" in page


class TrainingMask(nn.Module):
    """Causal in eval mode alone."""

    def forward(self, x):
        return x + nn.functional.scaled_dot_product_attention(x, x, x, is_causal=not self.training)


class OverTime(nn.Module):
    """BatchNorm over time: in training mode every position reads every other."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        y = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return x + nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)


class PaddingRead(nn.Module):
    """The mask of padding is used at once, and forgotten with one sequence."""

    def forward(self, x, mask=None):
        keep = None if mask is None or len(x) == 1 else mask[:, None, None, :]
        y = nn.functional.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=keep)
        return x + y[:, 0]


@pytest.mark.parametrize("model", [TrainingMask(), OverTime()])
def test_a_fault_of_training_alone_has_a_card_with_its_matrix(model):
    report = audit(model, vectors(N), CAUSAL, feedings=["shorter", "training", "alone"])
    assert {one.where for one in report.findings} == {"training"}
    page = render(report)
    before, _, after = page.partition("Wrong only when fed otherwise: training")
    assert "<circle" not in before  # what was given is as expected
    assert '<circle cx="1.5" cy="0.5"' in after
    assert "Full()" in after
    assert f"{N * (N - 1) // 2} extra" in after
    assert after.count('<circle cx="1.5" cy="0.5"') == after.count('<figure class="matrix"')
    assert page.count("Wrong only when fed otherwise") == 1
    tried = dict(re.findall(r"<b>(\w+)</b>:\s+1 call, ([^\n]*)</li>", after))
    assert "of its own" in tried["training"]
    assert (tried["shorter"], tried["alone"]) == ("nothing new", "nothing new")
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []


@pytest.mark.parametrize("model", [nn.Identity(), stack([[CAUSAL]], N)])
def test_where_nothing_is_wrong_no_feeding_has_a_card(model):
    page = render(audit(model, vectors(N), er.audit.AtMost(CAUSAL), feedings=["training", "alone"]))
    assert "Wrong only when fed otherwise" not in page
    assert "<circle" not in page


def test_a_fault_of_all_feedings_has_one_card():
    page = render(audit(leaky(), vectors(N), CAUSAL, feedings=["training", "alone"]))
    assert "Wrong only when fed otherwise" not in page
    assert "findings as before" in page


def test_an_output_of_its_own_and_rows_before_pooling_have_a_card_when_wrong():
    class Two(nn.Module):
        def forward(self, x):
            return {"hidden": x.cumsum(1), "logits": x.flip(1)}

    page = render(audit(Two(), vectors(N), CAUSAL, variants=False))
    assert "from x to logits" in page
    assert "<circle" in page.partition("from x to logits")[2]

    class Pooled(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x).mean(1)

    page = render(audit(Pooled(), vectors(N), CAUSAL, variants=False))
    assert "rows inside the model" in page
    assert "<circle" in page.partition("rows inside the model")[2]


def test_what_the_outputs_must_not_read_is_marked_though_the_calls_predict_it():
    page = render(audit(leaky(), vectors(N), CAUSAL, variants=False))
    assert "3 extra" in page.partition("Flow: what the outputs depend on")[2]


def test_padding_that_is_read_under_one_feeding_is_ringed_there():
    mask = torch.ones(2, N, dtype=torch.bool)
    mask[0, 6:] = False
    report = audit(PaddingRead(), {"x": vectors(N), "mask": mask}, feedings=["alone"])
    assert {one.where for one in report.findings if one.kind == "padding"} == {"alone"}
    assert "<circle" in render(report).partition("Wrong only when fed otherwise: alone")[2]


def test_nothing_is_loaded_from_elsewhere():
    page = render(audit(leaky(), vectors(N), CAUSAL))
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", page)
    assert "http" not in page.replace("http-equiv", "")
    assert "@import" not in page
    assert "url(" not in page


def test_names_from_the_model_are_escaped():
    class Evil(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("<script>alert(1)</script>", stack([[CAUSAL]], N))

        def forward(self, x):
            return self._modules["<script>alert(1)</script>"](x)

    Evil.__name__ = "<img src=x onerror=alert(1)>"
    for expect in (er.Full(), None):
        page = render(audit(Evil(), vectors(N), expect))
        assert "&lt;script&gt;" in page
        assert "<script" not in page
        assert "<img" not in page


def test_a_hundred_layers_are_a_few_cards():
    model = stack([[er.Window(2)], [CAUSAL]] * 50, N)
    report = audit(model, vectors(N), CAUSAL, flow=False, variants=False)
    page = render(report)
    assert page.count('<section class="card') == 2
    assert "and 49 more, to layers.98.attention" in page
    assert page.count('class="letter') == 102


def test_padding_flow_and_missing_attention_are_said():
    page = render(audit(nn.GRU(16, 16, batch_first=True), vectors(N)))
    assert "No attention calls" in page
    assert "Causal()" in page
    assert "The flow was not measured" in render(audit(stack([[CAUSAL]], N), vectors(N), flow=False))
    mask = torch.zeros(2, N, dtype=torch.bool)
    mask[1, 6:] = True
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    padded = render(audit(layer, {"src": vectors(N), "src_key_padding_mask": mask}, er.Full()))
    assert 'class="padding"' in padded
    assert "item 1" in padded


def test_large_matrices_become_images():
    n = CELLS + 40
    drawn = picture(er.Full().on(n), CAUSAL.on(n), edge=(0, 1))
    assert drawn.image.startswith('<image href="data:image/png;base64,')
    assert drawn.image in drawn.svg(100)
    assert drawn.read == drawn.extra == ""
    assert drawn.counts == (n * (n + 1) // 2, n * (n - 1) // 2, 0)


def test_rows_of_padding_are_not_judged():
    drawn = picture(er.Full().on(3), CAUSAL.on(3), real=np.array([False, True, True]))
    assert drawn.counts == (8, 1, 0)
    assert drawn.padding == "M0 0h3v1h-3z"


def test_ranges():
    assert ranges([3]) == "3"
    assert ranges([0, 2, 3, 4]) == "0, 2-4"
