"""The HTML report: self-contained, escaped, grouped, and it shows the edge that breaks the expectation."""

import re
from html.parser import HTMLParser

import numpy as np
import torch
from torch import nn

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import audit
from erlangen.audit.page import ranges, render
from erlangen.audit.picture import CELLS, picture

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
    assert drawn.image is not None
    assert drawn.image.startswith("data:image/png;base64,")
    assert drawn.read == drawn.extra == ""
    assert drawn.counts == (n * (n + 1) // 2, n * (n - 1) // 2, 0)


def test_rows_of_padding_are_not_judged():
    drawn = picture(er.Full().on(3), CAUSAL.on(3), real=np.array([False, True, True]))
    assert drawn.counts == (8, 1, 0)
    assert drawn.padding == "M0 0h3v1h-3z"


def test_ranges():
    assert ranges([3]) == "3"
    assert ranges([0, 2, 3, 4]) == "0, 2-4"
