"""transformers on erlangen: the same numbers as its own attention, and layers with other relations."""

import copy
import inspect

import pytest
import torch

import erlangen as er
from erlangen.audit import audit
from erlangen.audit.targets import inputs_for, small
from erlangen.errors import BackendError, ParameterError, SizeError
from erlangen.testing import AuditWarning, assert_relation

transformers = pytest.importorskip("transformers")
library = pytest.importorskip("transformers.masking_utils")

from erlangen.integrations import masks  # noqa: E402
from erlangen.integrations.transformers import readings, register, use_relation  # noqa: E402
from erlangen.integrations.transformers.relation_mask import RelationMask, relation_mask  # noqa: E402

DECODERS = ["gpt2", "llama", "mistral", "gemma2", "gpt_oss", "llama4_text"]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    register()
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(before)


def build(model_type, kind=None, **changes):
    torch.manual_seed(0)
    config = small(transformers.CONFIG_MAPPING[model_type])
    for name, value in {"attention_chunk_size": 8, **changes}.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return (kind or transformers.AutoModel).from_config(config).eval()


def on(model, implementation, **inputs):
    model.set_attn_implementation(implementation)
    return model(**inputs)


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("model_type", DECODERS)
def test_generation_with_a_cache_is_token_exact(model_type, cache):
    model = build(model_type, transformers.AutoModelForCausalLM)
    ids = torch.randint(5, 60, (2, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    options = {"max_new_tokens": 14, "do_sample": False, "eos_token_id": None, "cache_implementation": cache}
    texts = []
    for implementation in ("eager", "erlangen"):
        model.set_attn_implementation(implementation)
        texts.append(model.generate(ids, attention_mask=mask, **options))
    assert texts[0].shape == (2, 20)
    assert torch.equal(*texts)


@pytest.mark.parametrize("model_type", ["t5", "bart"])
def test_encoder_decoders_generate_the_same(model_type):
    model = build(model_type, transformers.AutoModelForSeq2SeqLM)
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    texts = []
    for implementation in ("eager", "erlangen"):
        model.set_attn_implementation(implementation)
        texts.append(
            model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False,
                           decoder_start_token_id=0)
        )  # fmt: skip
    assert torch.equal(*texts)


# ------------------------------------------------------------------------------------------- masks

GROUPS = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 2, 3, 3]])
CASES = {
    "causal": (library.causal_mask_function, "Causal()"),
    "full": (library.bidirectional_mask_function, "Full()"),
    "window": (library.sliding_window_causal_mask_function(4), "Window(lookback=3)"),
    "window, both ways": (
        library.sliding_window_bidirectional_mask_function(2), "Window(lookback=2, lookahead=2)"),
    "chunks": (library.chunked_causal_mask_function(3, torch.tensor([0, 0])), "Blocks(size=3) & Causal()"),
    "chunks behind padding": (library.chunked_causal_mask_function(3, torch.tensor([0, 2])), "Batch("),
    "documents": (
        library.and_masks(library.causal_mask_function, library.packed_sequence_mask_function(GROUPS)),
        "Causal()"),
    "images in text": (
        library.or_masks(library.causal_mask_function, library.blockwise_overlay(GROUPS - 1)), "Batch("),
    "groups that come back": (
        library.or_masks(library.causal_mask_function, library.blockwise_overlay(GROUPS % 2)), "Batch("),
    "someone's own": (lambda b, h, i, j: (i * j) % 3 != 1, "FromMask("),
}  # fmt: skip
PADDINGS = {
    "none": None,
    "left": torch.tensor([[0] * 3 + [1] * 6, [1] * 9]).bool(),
    "right": torch.tensor([[1] * 4 + [0] * 5, [1] * 9]).bool(),
    "holes": torch.tensor([[0, 1, 0, 0, 1, 1, 1, 0, 1], [0] * 9]).bool(),
}
SIZES = [
    (9, 9, 0, 0),
    (3, 9, 6, 0),
    (1, 9, 8, 0),
    (3, 7, 6, 2),  # a sliding cache has dropped two keys
    (2, 9, 4, 0),  # a static cache with three free places
    (2, 9, torch.tensor(4), 0),
    (4, 9, 0, 0),
]


@pytest.mark.parametrize("pad", PADDINGS)
@pytest.mark.parametrize("case", CASES)
def test_the_relations_of_a_mask_are_the_mask_of_sdpa(case, pad):
    function, text = CASES[case]
    for queries, keys, q_offset, kv_offset in SIZES:
        sizes = {"batch_size": 2, "q_length": queries, "kv_length": keys, "q_offset": q_offset,
                 "kv_offset": kv_offset}  # fmt: skip
        sizes |= {"mask_function": function, "attention_mask": PADDINGS[pad]}
        made = relation_mask(**sizes)
        expected = library.sdpa_mask(**sizes, allow_is_causal_skip=False)
        assert type(made) is RelationMask
        assert made.shape == (2, 1, queries, keys)
        assert torch.equal(made.readable(), expected.expand(2, 1, queries, keys)), (case, pad, queries, keys)
    structure = relation_mask(2, 9, 9, mask_function=function).reading
    assert repr(structure.relation).startswith(text)


def test_padding_and_documents_are_told_from_the_layers_relation():
    reading = relation_mask(
        2, 9, 9, mask_function=CASES["documents"][0], attention_mask=PADDINGS["left"]
    ).reading
    assert reading.relation == er.Causal()
    left = er.Documents([3, 2, 4]) & er.Padding(6, side="left")
    assert reading.given == er.Batch([left, er.Documents([1, 5, 1, 2])])


def test_functions_are_read_by_what_they_compute_not_by_their_names(monkeypatch):
    """A version of transformers whose window counts differently is not misread."""

    def sliding_window_overlay(sliding_window):
        return lambda b, h, i, j: j >= i - sliding_window

    monkeypatch.setattr(library, "sliding_window_overlay", sliding_window_overlay)
    extent = readings.Extent(1, 9, 9)
    function = library.sliding_window_causal_mask_function(3)
    reading, _ = readings.read(readings.said_by(function, extent), extent)
    assert reading.relation != er.Window(lookback=2)
    assert reading.relation.on(9) == er.Window(lookback=3).on(9)


def test_a_relation_mask_is_the_mask_of_eager_to_whoever_computes_with_it():
    sizes = {"batch_size": 2, "q_length": 5, "kv_length": 5, "dtype": torch.float64}
    sizes["attention_mask"] = torch.tensor([[1, 1, 1, 0, 0], [1] * 5]).bool()
    made, dense = relation_mask(**sizes), library.eager_mask(**sizes)
    assert isinstance(made, torch.Tensor)
    assert (made.dtype, made.shape) == (dense.dtype, dense.shape)
    assert made.detach() is made
    assert "Padding(3)" in repr(made)
    assert torch.equal(made[:, :, :2], dense[:, :, :2])
    assert torch.equal(made + 1, dense + 1)
    assert torch.equal(torch.cat([made, dense], -1), torch.cat([dense, dense], -1))


def test_masks_of_the_users_own():
    model = build("llama")
    ids = torch.randint(5, 60, (2, 9))
    free = torch.rand(2, 1, 9, 9) > 0.4
    free |= torch.eye(9, dtype=torch.bool)
    lowest = torch.finfo(torch.float32).min
    given = {
        "packed": {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1], list(range(9))])},
        "boolean": {"attention_mask": free},
        "additive": {"attention_mask": torch.where(free, 0.0, lowest)},
        "the same for all queries": {
            "attention_mask": torch.where(torch.arange(9) == 3, lowest, 0.0)[None, None, None]
        },
        "weights": {"attention_mask": torch.randn(2, 1, 9, 9).masked_fill(~free, lowest)},
    }
    for name, inputs in given.items():
        one, other = (
            on(model, implementation, input_ids=ids, use_cache=False, **inputs).last_hidden_state
            for implementation in ("sdpa", "erlangen")
        )
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "bert", "t5", "gpt_oss"])
def test_attention_weights_are_returned_where_they_are_asked_for(model_type):
    model = build(model_type)
    inputs = inputs_for(model, 9)
    name = "decoder_attentions" if model_type == "t5" else "attentions"
    one, other = (
        getattr(on(model, implementation, **inputs, output_attentions=True), name)
        for implementation in ("eager", "erlangen")
    )
    assert len(one) == len(other) == 2
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(b, a, atol=1e-6, rtol=1e-5)
    assert on(model, "erlangen", **inputs).get(name) is None


def test_arguments_that_would_be_ignored_are_refused():
    from erlangen.integrations.transformers.forward import attention_forward

    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(BackendError, match="'block_indices', which Identity passes"):
        attention_forward(torch.nn.Identity(), x, x, x, None, block_indices=x)
    with pytest.raises(SizeError, match="is for 5 keys, and Identity has 3"):
        attention_forward(torch.nn.Identity(), x, x, x, relation_mask(1, 3, 5, q_offset=2))


def test_dropout_keeps_the_mean():
    from erlangen.integrations.transformers.forward import attention_forward

    torch.manual_seed(0)
    x, v = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8)
    plain, _ = attention_forward(torch.nn.Identity(), x, x, v, None)
    many, _ = attention_forward(
        torch.nn.Identity(), *(t.expand(1, 4000, 4, 8) for t in (x, x, v)), None, dropout=0.3
    )
    assert not torch.equal(many[:, :, 0], many[:, :, 1])
    torch.testing.assert_close(many.mean(2, keepdim=True), plain, atol=0.06, rtol=0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing(reentrant):
    model = build("llama").train()
    ids = torch.randint(5, 60, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    grads = []
    for checkpoint in (False, True):
        model.zero_grad()
        if checkpoint:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        on(
            model, "erlangen", input_ids=ids, attention_mask=mask, use_cache=False
        ).last_hidden_state.sum().backward()
        grads.append(model.layers[0].self_attn.q_proj.weight.grad.clone())
    torch.testing.assert_close(*grads)


# ------------------------------------------------------------------------------------------- audit


def test_the_audit_understands_models_on_erlangen():
    expected = {
        "mistral": er.Window(lookback=7),
        "gemma2": {"layers.0*": er.Window(lookback=7), "layers.1*": er.Causal()},
        "t5": {"encoder*": er.Full(), "*EncDecAttention": er.Full(), "decoder*": er.Causal()},
        "gpt_oss": {"layers.0*": er.Window(lookback=7), "layers.1*": er.Causal()},
    }
    for model_type, expect in expected.items():
        model = build(model_type)
        model.set_attn_implementation("erlangen")
        report = audit(model, inputs_for(model, 12), expect, variants=False, flow=False)
        assert report.verdict == "holds", report
        assert {call.api for call in report.calls} == {"attend"}
        assert not report.coverage.unexplained


def test_weights_that_hide_keys_are_not_explained_away():
    class Hidden(torch.nn.Module):
        def forward(self, x):
            return er.attend(x, x, x, er.Weighted(er.Causal(), torch.eye(6) * -1e9))

    report = audit(Hidden(), torch.randn(2, 3, 6, 4), variants=False, flow=False)
    assert not report.calls
    assert "hide keys" in report.coverage.unexplained[0].reason


# ------------------------------------------------------------------------------------ use_relation

WINDOW = er.Window(lookback=2, lookahead=2)


def test_the_chosen_layers_have_the_relation_and_the_others_do_not():
    model = build("bert", num_hidden_layers=3)
    inputs = inputs_for(model, 12)
    plain = model(**inputs).last_hidden_state
    with use_relation(model, WINDOW, layers=[0, 2]) as changed:
        assert list(changed.modules) == [f"encoder.layer.{i}.attention.self" for i in (0, 2)]
        assert_relation(
            model,
            inputs,
            {"encoder.layer.1*": er.Full(), "encoder.layer.0*": WINDOW, "encoder.layer.2*": WINDOW},
        )
        with pytest.raises(AssertionError, match=r"layer\.1.*expected Window"):
            assert_relation(model, inputs, WINDOW)
        assert not torch.allclose(model(**inputs).last_hidden_state, plain, atol=1e-3)
        inside = copy.deepcopy(model)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model(**inputs).last_hidden_state, plain)
    # A copy made inside keeps the relation.
    with pytest.warns(AuditWarning, match="nothing was expected of encoder.layer.1"):
        assert_relation(inside, inputs, {"encoder.layer.0*": WINDOW})


def test_padding_and_documents_still_hold():
    model = build("llama")
    ids = torch.randint(5, 60, (2, 9))
    real = torch.tensor([[1] * 6 + [0] * 3, [1] * 9])
    use_relation(model, WINDOW)
    report = audit(model, {"input_ids": ids, "attention_mask": real}, variants=False, flow=False)
    assert report.calls[0].kernel == er.Batch([WINDOW & er.Padding(6), WINDOW]), report
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]] * 2)
    packed = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    first = audit(model, packed, variants=False, flow=False).calls[0]
    expected = (WINDOW & er.Documents([4, 5])).on(9)
    assert first.measured.kernel.items[0][0] == expected


def test_a_model_trains_with_its_new_relation():
    model = build("bert", transformers.AutoModelForMaskedLM).train()
    relation = er.PerHead([WINDOW, er.Full(), er.Causal(), er.Dilated(2)])
    use_relation(model, relation, layers=range(1, 2))
    ids = torch.randint(5, 60, (4, 12), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(8):
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    inputs = {"input_ids": ids}
    assert_relation(model, inputs, {"*layer.1*": relation, "*layer.0*": er.Full()})


@pytest.mark.parametrize("cache", [None, "static"])
def test_decoding_follows_the_new_relation(cache):
    """Tokens chosen one by one behind a cache are those of the whole sequence at once."""
    model = build("gpt2", transformers.AutoModelForCausalLM)
    ids = torch.randint(5, 60, (1, 5), generator=torch.Generator().manual_seed(0))
    relation = er.Window(lookback=3) | er.Global(keys=[0]) & er.Causal()
    with use_relation(model, relation):
        text = model.generate(
            ids, max_new_tokens=10, do_sample=False, eos_token_id=None, cache_implementation=cache
        )
        logits = model(text[:, :-1]).logits
    assert torch.equal(logits[:, 4:].argmax(-1), text[:, 5:])


def test_decoding_that_cannot_follow_is_refused():
    model = build("mistral", transformers.AutoModelForCausalLM)  # its caches keep the last 8 keys
    ids = torch.randint(5, 60, (1, 12))
    options = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    with use_relation(model, er.Window(lookback=4)):
        model.generate(ids, **options)
    with (
        use_relation(model, er.Causal()),
        pytest.raises(SizeError, match="sliding cache of MistralAttention"),
    ):
        model.generate(ids, **options)
    model = build("gpt2", transformers.AutoModelForCausalLM)
    with use_relation(model, er.Full()), pytest.raises(SizeError, match="cannot be decoded step by step"):
        model.generate(ids, **options)


def test_layers_by_name_and_number():
    model = build("bart")
    encoder = [f"encoder.layers.{i}.self_attn" for i in (0, 1)]
    decoder = [f"decoder.layers.{i}.self_attn" for i in (0, 1)]
    names = {
        None: encoder + decoder,
        "encoder": encoder,
        "decoder.layers.1": decoder[1:],
        "*.encoder_attn": [f"decoder.layers.{i}.encoder_attn" for i in (0, 1)],
        -1: decoder[1:],
        (0, "decoder"): [encoder[0], *decoder],
    }
    for layers, expected in names.items():
        with use_relation(model, WINDOW, layers) as changed:
            assert list(changed.modules) == expected, layers
    outer = use_relation(model, WINDOW, "encoder")
    inner = use_relation(model, er.Full(), 0)
    inner.undo()
    inner.undo()
    assert model.encoder.layers[0].self_attn.erlangen_relation == WINDOW
    assert model.config._attn_implementation == "erlangen"
    outer.undo()
    assert model.config._attn_implementation == model.encoder.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("layers", [(0, 0), (0, 1), (None, 1)])
def test_replacements_are_undone_in_reverse_order_only(layers):
    model = build("bert")
    first, second = (
        use_relation(model, er.Window(k), layer) for k, layer in zip((1, 2), layers, strict=True)
    )
    with pytest.raises(ParameterError, match="undo that one first"):
        first.undo()
    second.undo()
    first.undo()
    assert model.config._attn_implementation == "sdpa"
    assert not any(hasattr(module, "erlangen_relation") for module in model.modules())


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([0, 9], "layers has 9, but BertModel has 2 self-attention layers, 0 .. 1"),
        (-3, "layers has -3"),
        ("decoder", "layers has 'decoder', which names none of BertModel's encoder.layer.0"),
        ([], "layers is empty"),
        ([1.5], "takes numbers and names, got 1.5"),
        (True, "takes numbers and names, got True"),
    ],
)
def test_layers_that_are_not_there(layers, message):
    model = build("bert")
    with pytest.raises(ParameterError, match=message):
        use_relation(model, WINDOW, layers)
    assert model.config._attn_implementation == "sdpa"


def test_models_and_relations_that_do_not_fit():
    with pytest.raises(ParameterError, match="Linear is no transformers model"):
        use_relation(torch.nn.Linear(2, 2), WINDOW)
    with pytest.raises(ParameterError, match="is no transformers model that calls its attention through"):
        use_relation(build("mamba"), WINDOW)
    with pytest.raises(ParameterError, match="got Batch"):
        use_relation(build("bert"), er.Batch([WINDOW, WINDOW]))
    model = build("llama")
    use_relation(model, WINDOW)
    mask = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    with pytest.raises(BackendError, match="hands over a dense mask"):
        model(torch.ones(1, 5, dtype=torch.long), attention_mask=mask, use_cache=False)


def test_the_registered_functions_take_what_transformers_passes():
    """Every argument that the mask functions of transformers take is one that ours takes."""
    theirs = set(inspect.signature(library.sdpa_mask).parameters)
    ours = set(inspect.signature(relation_mask).parameters)
    assert {"batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "mask_function"} <= ours & theirs
    assert masks.mask(er.Causal(), 3).equal(relation_mask(1, 3, 3).readable()[0, 0])
