"""PyTorch's own modules, FlexAttention, torch-geometric, and models without attention."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import erlangen as er
from audit_models import stack, vectors
from erlangen.audit import AtMost, Inputs, audit, flow
from erlangen.audit.arguments.reading import read
from erlangen.audit.state import untouched
from erlangen.audit.witnesses.rounding import differs
from erlangen.audit.witnesses.runs import Mode, Runner
from erlangen.errors import DataError
from erlangen.relations import Neighborhoods

CAUSAL = nn.Transformer.generate_square_subsequent_mask(6)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"kdim": 8, "vdim": 4}, {"bias": False}]
)
def test_multihead_attention(options, need_weights):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, batch_first=True, **options)
    x = vectors(6)
    k, v = (x[..., :8], x[..., :4]) if options.get("kdim") else (x, x)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    given = {"attn_mask": CAUSAL.isinf(), "key_padding_mask": padding, "need_weights": need_weights}
    report = audit(layer, Inputs((x, k, v), given), flow=False, variants=False)
    (call,) = report.calls
    assert call.measured.kernel.items[0][0] == er.Causal().on(6)
    assert call.measured.kernel.items[1][0] == (er.Causal() & er.Padding(4)).on(6)
    assert call.agree


def test_masks_that_differ_by_head_and_float_padding():
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True), vectors(6)
    masks = torch.stack([CAUSAL, torch.zeros(6, 6)]).repeat(2, 1, 1)
    padding = torch.zeros(2, 6)
    padding[:, 5] = float("-inf")
    report = audit(layer, Inputs((x, x, x), {"attn_mask": masks, "key_padding_mask": padding}), flow=False)
    want = (er.Causal() & er.Padding(5)).on(6), er.Padding(5).on(6)
    assert report.calls[0].measured.kernel.items == (want, want)


def test_transformer_with_encoder_and_decoder():
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    inputs = {"src": vectors(7), "tgt": vectors(6), "tgt_mask": CAUSAL}
    expect = {"encoder.*": er.Full(), "*self_attn": er.Causal(), "*multihead_attn": er.Full()}
    report = audit(model, inputs, expect)
    assert report.verdict == "holds"
    assert [call.kind for call in report.calls] == ["self", "self", "cross"]
    assert report.flow is not None
    assert report.flow.flow.content == "tgt"
    assert audit(model, {**inputs, "tgt_mask": None}, expect).verdict == "violated"


def test_sequence_first_modules():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32)
    x = vectors(6).transpose(0, 1).contiguous()
    report = audit(layer, {"src": x, "src_mask": CAUSAL}, er.Causal())
    assert report.verdict == "holds"
    assert report.flow is not None
    assert report.flow.relation == er.Causal()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_path_is_compared_with_the_observed_path():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[1, 4:] = True
    report = audit(model, {"src": vectors(6), "src_key_padding_mask": mask}, er.Full())
    assert report.verdict == "holds"
    assert report.flow is not None
    assert report.flow.fast_path is None
    assert any("fast path" in text for text in report.warnings)


def test_a_model_that_takes_other_code_when_watched_is_contradictory():
    class Shy(nn.MultiheadAttention):
        def forward(self, query):
            watched = torch._C._is_torch_function_mode_enabled()
            return super().forward(
                query, query, query, attn_mask=CAUSAL if watched else None, need_weights=False
            )[0]

    report = audit(Shy(16, 2, batch_first=True), vectors(6))
    assert report.verdict == "contradictory"
    assert any("fast path differs" in text for text in report.contradictions)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention():
    class Flex(nn.Module):
        def __init__(self, score_mod):
            super().__init__()
            self.score_mod = score_mod

        def forward(self, x):
            q = x.view(*x.shape[:2], 2, 8).transpose(1, 2)
            if self.score_mod:
                out = flex_attention(
                    q, q, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s, -float("inf"))
                )
            else:
                n = x.shape[1]
                mask = create_block_mask(
                    lambda b, h, i, j: (i >= j) & (i - j <= 2 + h), 1, 2, n, n, device="cpu"
                )
                out = flex_attention(q, q, q, block_mask=mask)
            return x + out.transpose(1, 2).flatten(2)

    report = audit(Flex(False), vectors(9), flow=False, variants=False)
    assert report.calls[0].api == "flex"
    assert report.calls[0].kernel == er.PerHead([er.Window(lookback=2), er.Window(lookback=3)])
    assert report.calls[0].agree
    assert audit(Flex(True), vectors(9), er.Causal(), flow=False, variants=False).verdict == "holds"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_kept_by_a_module():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = flex_attention

        def forward(self, x):
            q = x[:, None]
            return self.attend(q, q, q)[:, 0]

    model = Keeps()
    assert audit(model, vectors(9), er.Full(), flow=False, variants=False).verdict == "holds"
    assert model.attend is flex_attention


def test_a_model_that_cannot_be_observed_is_undecided():
    class Refuses(nn.Module):
        def forward(self, x):
            if torch._C._is_torch_function_mode_enabled():
                raise RuntimeError("not while watched")
            return x

    report = audit(Refuses(), vectors(5), er.Causal(), variants=False)
    assert report.verdict == "violated"  # the flow alone decides it: rows read themselves only
    assert not report.counterexamples[0].extra
    assert "not while watched" in report.coverage.unexplained[0].reason
    assert report.flow is not None
    assert report.flow.relation == er.Identity()


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_graph_attention(name):
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 3]])
    model = getattr(pyg, name)(16, 8, heads=2)
    report = audit(model, (vectors(5, 1)[0], edges))
    loops = er.Identity() if name != "TransformerConv" else er.Empty()
    want = (er.Graph.from_edge_index(edges, 5) | loops).on(5)
    (call,) = report.calls
    assert (call.api, call.heads, call.agree) == ("pyg", 2, True)
    assert call.measured.kernel.unique == (want,)
    assert report.flow is not None
    assert want <= report.flow.flow.relations[0]
    assert report.flow.outside_attention is not None
    assert report.flow.outside_attention[0].num_edges == 0


def test_graph_attention_against_the_edges():
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 3]])
    model = pyg.GATConv(16, 8, flow="target_to_source", add_self_loops=False)
    (call,) = audit(model, (vectors(5, 1)[0], edges), flow=False, variants=False).calls
    assert call.measured.kernel.unique == (er.Graph.from_edge_index(edges.flip(0), 5).on(5),)
    assert call.agree


@pytest.mark.parametrize(
    ("model", "relation", "kind"),
    [
        (nn.LSTM(16, 16, batch_first=True), er.Causal(), "total order"),
        (nn.LSTM(16, 8, batch_first=True, bidirectional=True), er.Full(), "full"),
        (nn.Sequential(nn.Linear(16, 16), nn.GELU()), er.Identity(), "identity"),
    ],
)
def test_models_without_attention_get_a_flow_verdict(model, relation, kind):
    report = audit(model, vectors(6), relation)
    assert report.verdict == "holds"
    assert f"no attention; flow: {kind}" in str(report)
    assert f"no attention; flow: {kind}" in report.to_json()["warnings"]
    assert report.flow is not None
    assert report.flow.relation == relation


def test_a_causal_convolution_and_a_mixer():
    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(16, 16, 3)

        def forward(self, x):
            return self.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)

    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(6, 6)

        def forward(self, x):
            return x + self.mix(x.transpose(1, 2)).transpose(1, 2)

    assert audit(Conv(), vectors(6), AtMost(er.Causal())).verdict == "holds"
    assert audit(Conv(), vectors(6), er.Causal()).verdict == "violated"  # a window is not all of the past
    conv = audit(Conv(), vectors(6), er.Window(lookback=2))
    assert conv.verdict == "holds"
    assert conv.flow is not None
    assert conv.flow.relation == er.Window(lookback=2)
    assert audit(Mixer(), vectors(6), er.Causal()).verdict == "violated"


class Mixture(nn.Module):
    """Tokens are grouped by expert, so changing one moves the rounding of others."""

    def __init__(self, dim=64, experts=4):
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight, chosen = self.gate(flat).softmax(-1).max(-1)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            mine = (chosen == index).nonzero().squeeze(-1)
            if len(mine):
                out[mine] = expert(flat[mine]) * weight[mine, None]
        return x + out.view_as(x)


def test_rounding_is_told_from_dependence():
    measured = flow(Mixture(), Inputs.of(torch.randn(1, 16, 64, generator=torch.Generator().manual_seed(0))))
    assert measured.relations[0] == er.Identity().on(16)
    assert (measured.relations[0] & measured.rounding[0]).num_edges == 0


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_a_small_but_real_dependence_is_not_taken_for_rounding(dtype, size):
    class Faint(nn.Module):
        def forward(self, x):
            return x + size * x.mean(1, keepdim=True)

    measured = flow(Faint(), Inputs.of(vectors(6).to(dtype)))
    assert set(measured.relations) == {er.Full().on(6)}
    assert all(part.num_edges == 0 for part in measured.rounding)


def test_a_compiled_model_is_audited_by_flow():
    torch.manual_seed(0)
    model = torch.compile(stack([[er.Causal()]], 6), backend="eager")
    report = audit(model, vectors(6), er.Causal(), variants=False)
    assert (report.model, report.verdict) == ("Stack", "holds")
    assert report.flow is not None
    assert report.flow.relation == er.Causal()


@dataclass
class Out:
    count: int
    logits: torch.Tensor


class Pair(NamedTuple):
    state: torch.Tensor
    pooled: torch.Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: Out(1, y),
        lambda y: Pair(y, y.mean(1)),
        lambda y: {"a": None, "b": [y]},
        lambda y: (y.argmax(-1), y),
    ],
)
def test_outputs_of_any_type(wrap):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = stack([[er.Causal()]], 6)

        def forward(self, batch):
            return wrap(self.stack(batch["x"]))

    class Named(Wrapped):
        def forward(self, x, scale=1.0):
            return super().forward({"x": x * scale})

    report = audit(Named(), {"x": vectors(6), "scale": 2.0}, er.Causal())
    assert report.verdict == "holds"
    assert report.flow is not None
    assert report.flow.relation == er.Causal()


def test_windows_of_an_image_are_said_to_be_chunks():
    class Windows(nn.Module):
        def forward(self, x):
            q = x.view(-1, 3, 16)
            return F.scaled_dot_product_attention(q, q, q).view_as(x)

    report = audit(Windows(), vectors(6), flow=False, variants=False)
    assert (report.calls[0].queries, report.calls[0].heads) == (3, 2)
    assert any("that of a chunk" in text for text in report.warnings)


def test_samples_of_sound_are_positions():
    class Hears(nn.Module):
        def forward(self, input_values):
            return input_values.unfold(1, 4, 4)

    report = audit(Hears(), {"input_values": torch.zeros(2, 16)})
    assert report.flow is not None
    assert report.flow.flow.relations[0] == Neighborhoods.from_dense(
        np.kron(np.eye(4, dtype=bool), np.ones((1, 4), bool))
    )


def test_a_pooled_output_has_one_row():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = stack([[er.Causal()]], 6)

        def forward(self, x):
            return self.stack(x)[:, 2]

    measured = flow(Pooled(), Inputs.of(vectors(6)))
    assert measured.pooled
    assert measured.relations[0].dense().tolist() == [[True] * 3 + [False] * 3]


def test_an_output_without_numbers_is_refused():
    class Silent(nn.Module):
        def forward(self, x):
            return "nothing"

    with pytest.raises(DataError, match="no floating point tensor"):
        flow(Silent(), Inputs.of(vectors(4)))
    report = audit(Silent(), vectors(4), er.Causal())
    assert report.verdict == "undecided"
    assert any("the flow was not measured" in text for text in report.warnings)


def suffix_flow(model: nn.Module, inputs: Inputs) -> list[tuple[int, int, int]]:
    """Rows that read the future: change all positions from j on, and rows before j must not move.

    Returns (item, row, j) for every row that did; an empty list settles causality in n runs.
    """
    reading = read(model, inputs)
    content = reading.contents[0]
    with untouched(model) as snapshot:
        runner = Runner(model, inputs, reading, snapshot, Mode("as it is", train=model.training))
        place = runner.places()[0]
        base, moved = place.rows(runner.base()), []
        for j in range(1, content.length):
            rows = place.rows(runner.changed(content, range(j, content.length)))
            changed = differs(rows, base)[0].numpy()
            moved += [(int(b), int(i), j) for b, i in np.argwhere(changed) if i < j]
    return moved


def test_suffixes_settle_causality():
    assert suffix_flow(stack([[er.Causal()]], 6), Inputs.of(vectors(6))) == []
    leaky = er.FromMask(er.Causal().on(6).dense() | (np.arange(36).reshape(6, 6) == 2 * 6 + 4))
    moved = suffix_flow(stack([[leaky]], 6), Inputs.of(vectors(6, 1)))
    assert {(i, j) for _, i, j in moved} == {(2, 3), (2, 4)}


def test_several_inputs_show_what_a_relation_depends_on():
    class Packed(nn.Module):
        def forward(self, x, document_ids):
            mask = document_ids[:, None, :, None] == document_ids[:, None, None, :]
            q = x[:, None]
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)[:, 0]

    first, second = torch.tensor([[0, 0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 1, 1, 1, 1]])
    x = vectors(6, 1)
    report = audit(
        Packed(), [{"x": x, "document_ids": ids} for ids in (first, second)], flow=False, variants=False
    )
    assert report.data_dependent == {"": "on document_ids"}
    assert report.calls[0].kernel == er.Blocks(3)
    assert report.trials[0].calls[0].kernel == er.Documents([2, 4])
