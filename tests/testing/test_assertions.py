"""The assertions pass on right models and name module, head and edge on wrong ones; so do the fixtures."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er
from audit.museum import models as museum
from audit_models import stack, vectors
from erlangen.errors import ParameterError
from erlangen.testing import assert_causal, assert_no_padding_leak, assert_relation, assert_same_relation

pytest_plugins = ["pytester"]
N, CAUSAL = museum.N, museum.CAUSAL


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_relation():
    assert assert_relation(stack([[CAUSAL]], N), vectors(N), CAUSAL).verdict == "holds"
    with pytest.raises(AssertionError, match=r"layers\.1\.attention, head 1: .* extra edge \(2, 5\)"):
        assert_relation(museum.future_leak(True), vectors(N), CAUSAL)
    with pytest.raises(ParameterError, match="needs a relation"):
        assert_relation(stack([[CAUSAL]], N), vectors(N), None)


def test_nothing_is_inferred_from_silence():
    class Hidden(nn.Module):
        def forward(self, x):
            if torch._C._is_torch_function_mode_enabled():
                raise RuntimeError("not while watched")
            return x

    with pytest.raises(AssertionError, match=r"missing edge \(0, 1\)"):
        assert_relation(Hidden(), vectors(N), er.Full())
    with pytest.raises(AssertionError, match="no attention call was seen"):
        assert_relation(Hidden(), vectors(N), er.Full(), flow=False)


@pytest.mark.parametrize("relation", [CAUSAL, er.Window(2), CAUSAL & er.Documents([3, 5])])
def test_whatever_reads_no_later_position_is_causal(relation):
    assert_causal(stack([[relation, CAUSAL]], N), vectors(N))


def test_causal_rejects():
    with pytest.raises(AssertionError, match=r"layers\.1\.attention, item 0, head 1: query 2 reads key 5"):
        assert_causal(museum.future_leak(True), vectors(N))
    with pytest.raises(AssertionError, match="the whole model, item 0: output row 0 depends on position 1"):
        assert_causal(museum.convolution(True), vectors(N))
    assert_causal(museum.convolution(False), vectors(N))


def padded():
    mask = torch.ones(2, N, dtype=torch.long)
    mask[1, 5:] = 0
    tokens = torch.randint(0, 20, (2, N), generator=torch.Generator().manual_seed(0))
    return {"input_ids": tokens, "attention_mask": mask}


def test_padding():
    assert_no_padding_leak(museum.padding_read(False), padded())
    with pytest.raises(AssertionError, match="the model, item 1, head 0: query 0 reads padding key 5"):
        assert_no_padding_leak(museum.padding_read(True), padded())
    with pytest.raises(AssertionError, match=r"head 0 \(training\): query 0 reads padding key 5"):
        assert_no_padding_leak(museum.dropped_in_training(True), padded())
    with pytest.raises(AssertionError, match="no padding was tried"):
        assert_no_padding_leak(stack([[CAUSAL]], N), vectors(N))


def test_padding_read_outside_attention():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 16)

        def forward(self, input_ids, attention_mask):
            x = self.embed(input_ids)
            mask = attention_mask.bool()[:, None, :]
            return F.scaled_dot_product_attention(x, x, x, attn_mask=mask) + x.mean(1, keepdim=True)

    with pytest.raises(AssertionError, match="output row 0 depends on padding position 5"):
        assert_no_padding_leak(Pooled(), padded())


def test_same_relation():
    a, b = stack([[CAUSAL, CAUSAL]], N), stack([[CAUSAL, CAUSAL]], N, "sdpa_bool")
    assert assert_same_relation(a, b, vectors(N)).calls == 1
    hole = er.FromMask(CAUSAL.on(N).dense() & (np.arange(N * N).reshape(N, N) != 4 * N + 1))
    with pytest.raises(AssertionError, match=r"layers\.0\.attention, item 0, head 1: edge \(4, 1\)"):
        assert_same_relation(a, stack([[CAUSAL, hole]], N), vectors(N))


def test_the_fixtures_of_the_plugin(pytester):
    pytester.makepyfile(
        """
        import torch
        from torch import nn
        import erlangen as er

        x = torch.randn(2, 5, 8)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def test_good(assert_relation, assert_causal, assert_same_relation):
            assert_relation(layer, {"src": x, "src_mask": mask}, er.Causal())
            assert_causal(layer, {"src": x, "src_mask": mask})
            assert_same_relation(layer, layer, {"src": x})

        def test_bad(assert_causal):
            assert_causal(layer, {"src": x})

        def test_padding(assert_no_padding_leak):
            padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
            assert_no_padding_leak(layer, {"src": x, "src_key_padding_mask": padding})
        """
    )
    # An installed erlangen brings the plugin by itself; naming it once works either way.
    result = pytester.runpytest("-p", "no:erlangen", "-p", "erlangen.testing.plugin")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*self_attn, item 0, head 0: query 0 reads key 1*"])


def test_the_plugin_is_light():
    code = "import erlangen.testing.plugin, sys; print('torch' in sys.modules, 'numpy.linalg' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split()[0] == "False"
