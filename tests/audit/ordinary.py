"""Ordinary models with right expectations: nothing is wrong with them, and an audit must say so.

Hugging Face models are built small from their configurations; nothing is downloaded. `quick` marks a third of
them that differ most.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import erlangen as er

Case = tuple[nn.Module, Any, Any]
CAUSAL, FULL = er.Causal(), er.Full()
SMALL = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2}
GPT2 = {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Ordinary:
    """A model, its inputs and what is rightly expected of it."""

    name: str
    make: Callable[[], Case]
    quick: bool
    needs: str | None

    def build(self) -> Case:
        """Always the same model."""
        torch.manual_seed(0)
        model, inputs, expect = self.make()
        return model.eval(), inputs, expect


ORDINARY: list[Ordinary] = []


def ordinary(
    name: str, quick: bool = False, needs: str | None = None
) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    """Register a function that builds a case; `needs` names a package that it imports."""

    def register(make: Callable[[], Case]) -> Callable[[], Case]:
        ORDINARY.append(Ordinary(name, make, quick, needs))
        return make

    return register


def ids(n: int = 12, seed: int = 0) -> torch.Tensor:
    """Token ids, none of them special."""
    return torch.randint(5, 60, (2, n), generator=torch.Generator().manual_seed(seed))


def vectors(n: int = 12, dim: int = 32, seed: int = 0) -> torch.Tensor:
    """Input vectors, always the same."""
    return torch.randn(2, n, dim, generator=torch.Generator().manual_seed(seed))


def padding(n: int = 12) -> torch.Tensor:
    """The second item is three shorter."""
    mask = torch.ones(2, n, dtype=torch.long)
    mask[1, n - 3 :] = 0
    return mask


def hugging(name: str, head: str = "Model", /, **options: Any) -> nn.Module:
    """A transformers model from its configuration."""
    import transformers

    config = getattr(transformers, f"{name}Config")(**options)
    return getattr(transformers, f"{name}{head}")(config)


def decoder(
    name: str, cls: str, head: str = "Model", expect: Any = CAUSAL, quick: bool = False, /, **options: Any
) -> None:
    """Register a decoder that is given token ids, or ids and labels when it has a head."""

    def make() -> Case:
        inputs = {"input_ids": ids()}
        if head != "Model":
            inputs["labels"] = ids()
        return hugging(cls, head, **options), inputs, expect

    ordinary(name, quick, "transformers")(make)


def encoder(
    name: str, cls: str, expect: Any = FULL, padded: bool = True, quick: bool = False, /, **options: Any
) -> None:
    """Register an encoder that is given token ids, and padding where `padded`."""

    def make() -> Case:
        inputs = {"input_ids": ids(), **({"attention_mask": padding()} if padded else {})}
        return hugging(cls, **options), inputs, expect

    ordinary(name, quick, "transformers")(make)


# ---- decoders

HYBRID = {"layers.0.*": er.Window(3), "layers.1.*": CAUSAL}
KINDS = {"head_dim": 8, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}

decoder("gpt2", "GPT2", **GPT2)
decoder("llama-lm", "Llama", "ForCausalLM", **GROUPED)
decoder("mistral", "Mistral", **GROUPED, sliding_window=None)
decoder("mistral-sliding", "Mistral", "Model", er.Window(3), True, **GROUPED, sliding_window=4)
decoder("qwen2", "Qwen2", **GROUPED)
decoder("qwen3-lm", "Qwen3", "ForCausalLM", **GROUPED, head_dim=8)
decoder("gemma2", "Gemma2", "Model", HYBRID, **GROUPED, **KINDS)
decoder("gemma3-text", "Gemma3Text", "Model", HYBRID, True, **GROUPED, **KINDS)
decoder("phi", "Phi", **SMALL)
decoder("gpt-neox-lm", "GPTNeoX", "ForCausalLM", **SMALL)
decoder("gptj", "GPTJ", **GPT2, rotary_dim=4)
decoder("opt", "OPT", **{**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64})
decoder("bloom", "Bloom", "Model", CAUSAL, True, vocab_size=60, hidden_size=32, n_layer=2, n_head=4)
decoder("falcon", "Falcon", **SMALL)
decoder("olmo", "Olmo", **GROUPED)
decoder("starcoder2", "Starcoder2", **GROUPED, sliding_window=None)
decoder("codegen", "CodeGen", **GPT2, rotary_dim=4)
decoder(
    "mamba", "Mamba", "Model", CAUSAL, True, vocab_size=60, hidden_size=32, num_hidden_layers=2, state_size=4
)


@ordinary("gpt2-lm", True, "transformers")
def gpt2_lm() -> Case:
    """The usual call: the labels are the tokens themselves, one tensor given twice."""
    text = ids()
    return hugging("GPT2", "LMHeadModel", **GPT2), {"input_ids": text, "labels": text}, CAUSAL


# ---- encoders

encoder("bert", "Bert", FULL, True, True, **SMALL)
encoder("roberta", "Roberta", **SMALL)
encoder("distilbert", "DistilBert", vocab_size=60, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
encoder("electra", "Electra", **SMALL, embedding_size=16)
encoder("albert", "Albert", **SMALL, embedding_size=16)
encoder("deberta-v2", "DebertaV2", FULL, False, False, **SMALL)
encoder(
    "modernbert",
    "ModernBert",
    {"layers.0.*": FULL, "layers.1.*": er.Window(2, 2)},
    True,
    **{**SMALL, "global_attn_every_n_layers": 2, "local_attention": 4, "cls_token_id": 3, "sep_token_id": 4},
)


# ---- encoder-decoders


@ordinary("t5", True, "transformers")
def t5() -> Case:
    options = {"vocab_size": 60, "d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64}
    expect = {"encoder.*": FULL, "*EncDecAttention": FULL, "decoder.*": CAUSAL}
    model = hugging("T5", **options, decoder_start_token_id=0)
    return model, {"input_ids": ids(), "decoder_input_ids": ids(8, 1)}, expect


@ordinary("bart", needs="transformers")
def bart() -> Case:
    options = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    model = hugging("Bart", vocab_size=60, d_model=32, max_position_embeddings=64, **options, **heads)
    expect = {"encoder.*": FULL, "decoder.*.self_attn": CAUSAL, "decoder.*.encoder_attn": FULL}
    return model, {"input_ids": ids(), "decoder_input_ids": ids(8, 1)}, expect


# ---- classifiers


@ordinary("bert-classifier", True, "transformers")
def bert_classifier() -> Case:
    model = hugging("Bert", "ForSequenceClassification", **SMALL, num_labels=3)
    return model, {"input_ids": ids(), "attention_mask": padding()}, FULL


@ordinary("gpt2-classifier", True, "transformers")
def gpt2_classifier() -> Case:
    model = hugging("GPT2", "ForSequenceClassification", **GPT2, num_labels=3, pad_token_id=0)
    return model, {"input_ids": ids()}, CAUSAL


# ---- vision and audio


@ordinary("vit", True, "transformers")
def vit() -> Case:
    sizes = {key: SMALL[key] for key in SMALL if key.startswith(("hidden", "num", "inter"))}
    model = hugging("ViT", **sizes, image_size=16, patch_size=4)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    return model, {"pixel_values": pixels}, FULL


@ordinary("wav2vec2", True, "transformers")
def wav2vec2() -> Case:
    """Sound samples to frames, sixteen to one; SpecAugment draws from NumPy and is off."""
    sizes = {"conv_dim": (16, 32), "conv_stride": (4, 4), "conv_kernel": (4, 4)}
    positions = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 4}
    model = hugging("Wav2Vec2", **SMALL, **sizes, **positions, apply_spec_augment=False)
    sound = torch.randn(2, 192, generator=torch.Generator().manual_seed(0))
    return model, {"input_values": sound}, FULL


@ordinary("whisper", needs="transformers")
def whisper() -> Case:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    lengths = {"max_source_positions": 12, "max_target_positions": 32, "num_mel_bins": 8}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    model = hugging("Whisper", vocab_size=60, d_model=32, **layers, **heads, **lengths, **special)
    sound = torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(0))
    expect = {"encoder.*": FULL, "decoder.*.self_attn": CAUSAL, "decoder.*.encoder_attn": FULL}
    return model, {"input_features": sound, "decoder_input_ids": ids(8, 1)}, expect


# ---- x-transformers


@ordinary("x-transformers-decoder", True, "x_transformers")
def x_decoder() -> Case:
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True)
    return TransformerWrapper(num_tokens=60, max_seq_len=64, attn_layers=layers), ids(), CAUSAL


@ordinary("x-transformers-encoder", needs="x_transformers")
def x_encoder() -> Case:
    from x_transformers import Encoder, TransformerWrapper

    layers = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
    model = TransformerWrapper(num_tokens=60, max_seq_len=64, attn_layers=layers)
    return model, {"x": ids(), "mask": padding().bool()}, FULL


# ---- torch.nn


@ordinary("torch-encoder-causal", True)
def torch_encoder_causal() -> Case:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(12)
    return model, {"src": vectors(), "mask": mask, "is_causal": True}, CAUSAL


@ordinary("torch-encoder-padded")
def torch_encoder_padded() -> Case:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return model, {"src": vectors(), "src_key_padding_mask": padding() == 0}, FULL


@ordinary("torch-transformer-sequence-first")
def torch_transformer() -> Case:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends batch_first
        model = nn.Transformer(32, 4, 1, 1, 64)
    mask = nn.Transformer.generate_square_subsequent_mask(8)
    inputs = {"src": vectors().transpose(0, 1), "tgt": vectors(8, seed=1).transpose(0, 1), "tgt_mask": mask}
    return model, inputs, {"encoder.*": FULL, "*self_attn": CAUSAL, "*multihead_attn": FULL}


@ordinary("torch-decoder")
def torch_decoder() -> Case:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=True), 2)
    mask = nn.Transformer.generate_square_subsequent_mask(12)
    inputs = {"tgt": vectors(), "memory": vectors(7, seed=1), "tgt_mask": mask}
    return model, inputs, {"*self_attn": CAUSAL, "*multihead_attn": FULL}


# ---- written by hand


class SelfAttention(nn.Module):
    """nanoGPT's attention: one projection, heads split by view, is_causal."""

    def __init__(self, dim: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.heads, self.dropout, self.drop = heads, dropout, nn.Dropout(dropout)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.c_attn(x).chunk(3, -1))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.drop(self.c_proj(y.transpose(1, 2).reshape(b, n, d)))


class Block(nn.Module):
    """Attention and a two-layer network with residuals."""

    def __init__(self, dim: int, attention: nn.Module) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(dim), nn.LayerNorm(dim), attention
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """nanoGPT: logits and loss with targets, the last row's logits without."""

    def __init__(self) -> None:
        super().__init__()
        self.block_size = 32
        self.wte, self.wpe = nn.Embedding(60, 32), nn.Embedding(32, 32)
        self.h = nn.ModuleList(Block(32, SelfAttention(32, 4)) for _ in range(2))
        self.ln_f, self.lm_head = nn.LayerNorm(32), nn.Linear(32, 60, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        n = idx.shape[1]
        assert n <= self.block_size, f"cannot forward a sequence of length {n}"
        x = self.wte(idx) + self.wpe(torch.arange(n, device=idx.device))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, 60), targets.reshape(-1), ignore_index=-1)


@ordinary("nanogpt", True)
def nanogpt() -> Case:
    text = ids(13)
    return GPT(), {"idx": text[:, :-1], "targets": text[:, 1:]}, CAUSAL


@ordinary("nanogpt-generating")
def nanogpt_generating() -> Case:
    return GPT(), ids(), CAUSAL


class Rotary(nn.Module):
    """Eager attention with rotary positions and a sliding window, in half of the heads' dimensions."""

    def __init__(self, dim: int, heads: int, lookback: int) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.lookback = (
            nn.Linear(dim, 3 * dim),
            nn.Linear(dim, dim),
            heads,
            lookback,
        )

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        angles = torch.arange(n)[:, None] * 0.1 ** torch.arange(q.shape[-1] // 2)
        q, k = (self._turn(t, angles.cos(), angles.sin()) for t in (q, k))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        mask = torch.ones(n, n, dtype=torch.bool).tril().triu(-self.lookback)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))

    @staticmethod
    def _turn(t, cos, sin):
        a, b = t.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


@ordinary("rotary-windows-by-hand")
def rotary_windows() -> Case:
    return nn.Sequential(*(Block(32, Rotary(32, 4, 3)) for _ in range(2))), vectors(), er.Window(3)


class Packed(nn.Module):
    """Two documents in one sequence, each causal."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Embedding(60, 32), nn.Linear(32, 96), nn.Linear(32, 60)

    def forward(self, input_ids, document_ids):
        x = self.embed(input_ids)
        q, k, v = (t[:, None] for t in self.qkv(x).chunk(3, -1))
        mask = (document_ids[:, :, None] == document_ids[:, None, :]).tril()
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])[:, 0]
        return {"logits": self.head(x)}


@ordinary("packed-documents-by-hand", True)
def packed() -> Case:
    documents = torch.tensor([0] * 5 + [1] * 7).expand(2, 12).contiguous()
    return Packed(), {"input_ids": ids(), "document_ids": documents}, CAUSAL & er.Documents([5, 7])


class Convolutional(nn.Module):
    """No attention: causal convolutions, a recurrent layer and a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(32, 32, 3)
        self.rnn, self.gate = nn.GRU(32, 32, batch_first=True), nn.Linear(32, 32)

    def forward(self, x):
        y = self.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return x + self.rnn(y)[0] * self.gate(x).sigmoid()


@ordinary("convolution-and-gru")
def convolution_and_gru() -> Case:
    return Convolutional(), vectors(), CAUSAL
