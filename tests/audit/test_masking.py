"""Which additive biases mask an edge, and which weigh it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

import erlangen as er
from audit_models import vectors
from erlangen.audit import audit
from erlangen.audit.capture.masking import masks

LOW = {
    "-5000": -5000.0,
    "-10000": -1e4,
    "-10000 / sqrt(64)": -1e4 / 8,
    "-1e9": -1e9,
    "finfo.min": torch.finfo(torch.float32).min,
    "-inf": -torch.inf,
}


class Biased(nn.Module):
    """Attention with an additive bias, in several places."""

    def __init__(self, bias, place):
        super().__init__()
        self.bias, self.place = bias, place

    def forward(self, x):
        bias = self.bias(x.shape[1])
        if self.place == "sdpa":
            return F.scaled_dot_product_attention(x, x, x, attn_mask=bias)
        if self.place == "mha":
            weight, zero = torch.eye(16).repeat(3, 1), torch.zeros(48)
            y = x.transpose(0, 1)
            return F.multi_head_attention_forward(
                y, y, y, 16, 1, weight, zero, None, None, False, 0.0, torch.eye(16), None, attn_mask=bias
            )[0].transpose(0, 1)
        scores = x @ x.transpose(1, 2)
        scores = (scores + bias) / 8 if self.place == "scaled after" else scores / 4 + bias
        return torch.softmax(scores, -1) @ x


def masked(value, relation=None):
    relation = er.Causal() if relation is None else relation

    def bias(n):
        return torch.zeros(n, n).masked_fill(~torch.from_numpy(relation.on(n).dense()), value)

    return bias


def distances(n):
    return (torch.arange(n)[:, None] - torch.arange(n)).abs().float()


@pytest.mark.parametrize("place", ["sdpa", "mha", "eager", "scaled after"])
@pytest.mark.parametrize("value", LOW)
def test_a_level_masks(value, place):
    if place == "scaled after" and value.startswith("-10000 / "):
        pytest.skip("scaled twice it is -156, which nobody writes")
    report = audit(Biased(masked(LOW[value]), place), vectors(6), er.Causal(), flow=False)
    assert report.verdict == "holds"
    assert all(call.agree and call.declared == call.kernel == er.Causal() for call in report.calls)
    assert all(call.weights is None for call in report.calls)
    leaky = er.Causal() | er.Window(lookback=0, lookahead=1)
    wrong = audit(Biased(masked(LOW[value], leaky), place), vectors(6), er.Causal(), flow=False)
    assert wrong.verdict == "violated"


@pytest.mark.parametrize("place", ["sdpa", "eager"])
@pytest.mark.parametrize("value", [-5000.0, -1e9])
def test_a_mask_and_a_relative_bias_in_one_tensor(value, place):
    table = torch.randn(64, generator=torch.Generator().manual_seed(0)) * 3

    def bias(n):
        return masked(value)(n) + table[: 2 * n - 1][(torch.arange(n)[:, None] - torch.arange(n)) + n - 1]

    report = audit(Biased(bias, place), vectors(8), er.Causal(), flow=False)
    assert report.verdict == "holds"
    assert report.calls[0].agree
    assert report.calls[0].weights is not None


@pytest.mark.parametrize("place", ["sdpa", "eager"])
@pytest.mark.parametrize("slope", [0.5, 50.0, 200.0])
def test_alibi_weighs_however_low_it_gets(slope, place):
    # Longer inputs would reach -1e4, from where on a bias masks.
    model = Biased(lambda n: -slope * distances(n), place)
    report = audit(model, vectors(40), er.Full(), flow=False, variants=False)
    assert report.verdict == "holds"
    assert report.calls[0].agree


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(
    ("slope", "mask"), [(0.5, -torch.inf), (4.0, -torch.inf), (4.0, -1e9), (0.0, -5000.0)]
)
def test_a_score_mod_with_weights_and_a_mask(slope, mask):
    torch.compiler.reset()

    def score_mod(score, b, h, i, j):
        return torch.where(i >= j, score - slope * (i - j), mask)

    class Flex(nn.Module):
        def forward(self, x):
            return flex_attention(x[:, None], x[:, None], x[:, None], score_mod=score_mod)[:, 0]

    report = audit(Flex(), vectors(64), er.Causal(), flow=False, variants=False)
    assert (report.verdict, report.calls[0].agree) == ("holds", True)
    wrong = audit(Flex(), vectors(64), er.Window(lookback=40), flow=False, variants=False)
    assert wrong.verdict == "violated"


def test_the_rule_itself():
    assert not masks(-0.5 * distances(5000)[:8]).any()  # ALiBi, 2500 and lower
    assert not masks(torch.tensor([0.3, -2.0, -7.5, -40.0])).any()  # T5 buckets
    assert not masks(torch.full((4, 4), -5000.0)).any()  # one constant is no mask but a shift
    twice = torch.tensor([0.0, -5000.0, -5000.0 - 3500.0, -1e9])
    assert masks(twice).tolist() == [False, True, True, True]
    assert masks(torch.tensor([0.0, -5000.0], dtype=torch.float16)).tolist() == [False, True]
    assert masks(torch.tensor([0.0, -5000.0], dtype=torch.bfloat16)).tolist() == [False, True]
    assert masks(torch.tensor([1.0, float("nan"), -2000.0])).tolist() == [False, False, True]
