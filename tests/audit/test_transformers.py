"""Real third-party models, built small from their configurations."""

import pytest
import torch

import erlangen as er
from erlangen.audit import audit

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def tokens(batch=2, n=12):
    return torch.randint(5, 60, (batch, n), generator=torch.Generator().manual_seed(0))


def build(name, /, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    return getattr(transformers, f"{name}Model")(config)


def attention(impl):
    return {"attn_implementation": impl}


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
def test_bert_reads_everything_but_padding(impl):
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    inputs = {"input_ids": tokens(), "attention_mask": mask}
    report = audit(build("Bert", **SMALL, **attention(impl)), inputs, er.Full())
    assert report.verdict == "holds"
    assert report.calls[0].kernel == er.Batch([er.Full(), er.Padding(9)])
    assert report.calls[0].bias == "full"
    assert [trial.label for trial in report.trials] == [
        "shorter", "padded", "padded left", "training", "other content", "special tokens", "alone",
        "with gradients", "autocast", "autocast (training)", "other sizes", "zeros filled", "second call",
    ]  # fmt: skip
    assert report.unchanged


def test_a_decoder_made_of_an_encoder():
    report = audit(build("Bert", **SMALL, is_decoder=True), tokens(), er.Causal())
    assert report.verdict == "holds"


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
def test_gpt2_is_causal(impl):
    model = build(
        "GPT2",
        vocab_size=60,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
        **attention(impl),
    )
    report = audit(model, {"input_ids": tokens()}, er.Causal())
    assert report.verdict == "holds"
    assert {trial.label for trial in report.trials} >= {
        "shorter",
        "padded",
        "padded left",
        "training",
        "alone",
    }
    assert report.flow is not None
    assert (report.flow.relation, report.flow.bias, report.flow.future_edges) == (
        er.Causal(),
        "total-order",
        0,
    )
    wrong = audit(model, tokens(), er.Full(), flow=False, variants=False)
    assert wrong.verdict == "violated"
    assert not wrong.counterexamples[0].extra


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
def test_sliding_windows_and_grouped_heads(impl):
    model = build("Mistral", **SMALL, num_key_value_heads=2, sliding_window=4, **attention(impl))
    report = audit(model, tokens(), er.Window(lookback=3))
    assert report.verdict == "holds"
    assert report.flow is not None
    assert report.flow.relation == er.Window(lookback=6)
    off = audit(model, tokens(), er.Window(lookback=4), flow=False)
    assert off.verdict == "violated"
    assert off.counterexamples[0].measured == "Window(lookback=3)"


def test_a_window_longer_than_the_sequence_cannot_be_seen():
    model = build("Mistral", **SMALL, num_key_value_heads=2, sliding_window=4096)
    report = audit(model, tokens(), er.Window(lookback=4095), flow=False)
    assert any("its window cannot be seen" in text for text in report.warnings)
    assert any("looks like Causal()" in text for text in report.warnings)


@pytest.mark.parametrize("name", ["Gemma2", "Gemma3Text"])
def test_hybrid_layers(name):
    torch.manual_seed(0)
    options = {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 4}
    kinds = ["sliding_attention", "full_attention"]
    config = getattr(transformers, f"{name}Config")(**options, layer_types=kinds)
    model = getattr(transformers, f"{name}Model")(config)
    report = audit(model, tokens(), {"layers.0.*": er.Window(lookback=3), "layers.1.*": er.Causal()})
    assert report.verdict == "holds"


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
def test_t5_has_three_relations(impl):
    model = build(
        "T5", vocab_size=60, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=64, decoder_start_token_id=0,
        **attention(impl),
    )  # fmt: skip
    inputs = {"input_ids": tokens(), "decoder_input_ids": tokens(n=7)}
    expect = {"encoder.*": er.Full(), "*EncDecAttention": er.Full(), "decoder.*": er.Causal()}
    report = audit(model, inputs, expect)
    assert report.verdict == "holds"
    assert [call.kind for call in report.calls] == ["self", "self", "self", "cross", "self", "cross"]
    assert report.calls[3].bias == "bipartite"
    assert report.flow is not None
    assert (report.flow.flow.content, report.flow.relation) == ("decoder_input_ids", er.Causal())
    (from_encoder,) = report.other_flows
    assert from_encoder.relation == er.Full()
    assert from_encoder.outside_attention is not None
    assert from_encoder.outside_attention[0].num_edges == 0
    assert "shorter decoder" in {trial.label for trial in report.trials}


def test_self_and_cross_are_told_apart_at_equal_lengths():
    model = build("T5", vocab_size=60, d_model=32, d_kv=8, num_layers=1, num_heads=4, d_ff=64)
    inputs = {"input_ids": tokens(n=9), "decoder_input_ids": tokens(n=9)}
    report = audit(model, inputs, flow=False, variants=False)
    assert [call.kind for call in report.calls] == ["self", "self", "cross"]


def test_longformer_is_probed_through_its_module():
    model = build(
        "Longformer", **{**SMALL, "pad_token_id": 1}, attention_window=4, max_position_embeddings=64
    )
    report = audit(model, tokens())
    assert [call.api for call in report.calls] == ["module", "module"]
    assert report.calls[0].kernel == er.Window(lookback=2, lookahead=2)
    assert report.coverage.unexplained == ()
    assert any("heads are not told apart" in text for text in report.warnings)
    assert report.flow is not None
    assert report.flow.relation == er.Window(lookback=4, lookahead=4)


def test_big_bird_is_block_sparse():
    model = build(
        "BigBird",
        **SMALL,
        block_size=4,
        num_random_blocks=1,
        max_position_embeddings=128,
        attention_type="block_sparse",
    )
    report = audit(model, tokens(1, 64), flow=False, variants=False)
    assert [(call.api, call.queries) for call in report.calls] == [("module", 64), ("module", 64)]
    measured = report.calls[0].measured.kernel.unique[0].dense()
    assert measured[:4].all()
    assert measured[:, :4].all()
    assert not measured.all()


def test_relative_positions_and_local_blocks():
    xlnet = build("XLNet", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=64)
    report = audit(xlnet, tokens(), er.Full())
    assert report.verdict == "holds"
    assert {call.api for call in report.calls} == {"eager"}
    options = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    local = build(
        "LongT5", **options, local_radius=2, encoder_attention_type="local", decoder_start_token_id=0
    )
    report = audit(
        local, {"input_ids": tokens(n=9), "decoder_input_ids": tokens(n=5)}, flow=False, variants=False
    )
    assert [(call.api, call.kind) for call in report.calls] == [
        ("module", "self"),
        ("eager", "self"),
        ("eager", "cross"),
    ]
    assert report.calls[0].kernel == er.Window(lookback=2, lookahead=2)
    assert report.coverage.unexplained == ()


def test_vit_reads_all_patches_and_its_class_token():
    model = build(
        "ViT", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        image_size=16, patch_size=4,
    )  # fmt: skip
    report = audit(
        model, {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))}
    )
    assert (report.calls[0].queries, report.calls[0].kernel) == (17, er.Full())
    assert report.flow is not None
    assert (report.flow.flow.relations[0].queries, report.flow.flow.relations[0].keys) == (17, 16)
    assert report.flow.relation == er.Full()


@pytest.mark.parametrize("experts", ["eager", None])
def test_experts_move_rounding_and_nothing_else(experts):
    options = {} if experts is None else {"experts_implementation": experts}
    model = build("Mixtral", **SMALL, num_key_value_heads=2, num_local_experts=4, **options)
    report = audit(model, tokens(1, 10), er.Causal(), variants=False)
    assert report.verdict == "holds"
    assert report.coverage.other_softmaxes == 2
    assert report.flow is not None
    assert report.flow.relation == er.Causal()
