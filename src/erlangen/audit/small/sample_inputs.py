"""Inputs for transformers models, by the names that forward takes: a batch of two, always the same."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from erlangen.audit.arguments.reading import special_tokens

Tensors = dict[str, torch.Tensor]
VECTORS = ("inputs_embeds", "hidden_states", "query_embeds", "encoder_hidden_states", "inputs", "src")
"""Names under which vectors are taken, by models that take nothing else."""
SAMPLES = 1600
"""Samples of sound: a tenth of a second."""
BINS = ("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel", "feature_size", "input_dim")
"""Names of the number of features of a frame."""
FRAMES = 64
"""Frames of a spectrogram."""
QUERIES = "num_query_tokens"
"""The name of the number of learned queries that stand for an image, where these are read in its place."""


def inputs_of(model: nn.Module, n: int) -> Iterator[Tensors]:
    """Inputs that the model may take, the likeliest first; whoever asks tries which of them run."""
    given = _Maker(model, n)
    names = given.names
    text = given.text() if "input_ids" in names else None
    images = list(given.images())
    if text is not None:
        if given.contrastive:
            yield from ({**text, **image} for image in images)
        for image in images:
            yield from given.with_placeholders(text, image)
        yield text
        yield from ({**text, **image} for image in images)
    yield from images
    for sound in given.sounds():
        yield {**sound, **given.decoder()}
        if text is not None:
            yield {**text, **sound}
    if "past_values" in names:
        length = int(given.find("context_length") or n)
        yield {"past_values": given.normal(2, length, int(given.find("num_input_channels") or 1))}
    for name in VECTORS:
        if name in names:
            vectors = given.normal(2, n, given.width)
            yield {name: vectors}
            if name != "encoder_hidden_states" and "encoder_hidden_states" in names:
                yield {name: vectors, "encoder_hidden_states": given.normal(2, n + 3, given.width)}


class _Maker:
    """Makes the tensors for one model."""

    def __init__(self, model: nn.Module, n: int) -> None:
        self.model, self.n = model, n
        self.names = set(inspect.signature(model.forward).parameters)
        self.config: Any = getattr(model, "config", None)
        self.generator = torch.Generator().manual_seed(0)
        self.contrastive = self.find("projection_dim") is not None and "pixel_values" in self.names
        self.width = int(self.find("hidden_size") or self.find("d_model") or 32)

    def find(self, name: str) -> Any:
        """A value of the configuration or of a part of it; None where there is none."""
        parts = ["", "text_config", "vision_config", "audio_config", "encoder", "vision_encoder_config"]
        for part in parts:
            try:
                value = getattr(getattr(self.config, part) if part else self.config, name)
            except Exception:
                continue  # a property may raise anything
            if value is not None:
                return value
        return None

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator, device="cpu")

    def tokens(self, length: int) -> torch.Tensor:
        """Ordinary tokens: none that the configuration gives another meaning."""
        vocabulary = int(self.find("vocab_size") or 64)
        ids = torch.randint(
            min(5, vocabulary - 2), vocabulary, (2, length), generator=self.generator, device="cpu"
        )
        special = special_tokens(self.model)
        ordinary = [one for one in range(min(5, vocabulary - 2), vocabulary) if one not in special]
        return (
            torch.tensor(ordinary, device="cpu")[ids % len(ordinary)]
            if special & set(ids.flatten().tolist())
            else ids
        )

    def text(self) -> Tensors:
        inputs = {"input_ids": self.tokens(self.n)}
        if "attention_mask" in self.names:
            inputs["attention_mask"] = torch.ones(2, self.n, dtype=torch.long, device="cpu")
        if "bbox" in self.names:
            inputs["bbox"] = torch.zeros(2, self.n, 4, dtype=torch.long, device="cpu")
        return {**inputs, **self.decoder()}

    def decoder(self) -> Tensors:
        if "decoder_input_ids" in self.names and getattr(self.config, "is_encoder_decoder", False):
            return {"decoder_input_ids": self.tokens(max(2, self.n * 3 // 4))}
        return {}

    def images(self) -> Iterator[Tensors]:
        """Images, patches of images with their grid, and videos."""
        side = self.find("image_size") or 32
        side = int(
            side[0]
            if isinstance(side, list | tuple)
            else side.get("height", 32)
            if isinstance(side, dict)
            else side
        )
        channels = self.find("num_channels") or self.find("in_channels") or 3
        channels = channels if isinstance(channels, int) else 3
        patches = {"hidden_states"} if {"hidden_states", "grid_thw"} <= self.names else set()
        for name in ("pixel_values", "pixel_values_videos", "pixel_values_images", *patches):
            if name not in self.names:
                continue
            grid = next((one for one in ("image_grid_thw", "grid_thw") if one in self.names), None)
            if grid is not None:
                patch, merged = int(self.find("patch_size") or 8), int(self.find("spatial_merge_size") or 2)
                entries = channels * int(self.find("temporal_patch_size") or 1) * patch * patch
                sides = 2 * merged
                yield {
                    name: self.normal(2 * sides * sides, entries),
                    grid: torch.tensor([[1, sides, sides]] * 2, device="cpu"),
                }
            if name in patches:
                continue
            yield {name: self.normal(2, channels, side, side)}
            frames = self.find("num_frames") or self.find("frames_per_clip") or 2
            yield {name: self.normal(2, int(frames), channels, side, side)}

    def with_placeholders(self, text: Tensors, image: Tensors) -> Iterator[Tensors]:
        """Text with as many placeholders as an image has rows, where the configuration names one."""
        token = self.find("image_token_id") or self.find("image_token_index")
        features = getattr(self.model, "get_image_features", None)
        if not isinstance(token, int) or features is None or token >= int(self.find("vocab_size") or 0):
            return
        try:
            with torch.no_grad():
                rows = _rows(features(**image))
        except Exception:
            return  # another form of images
        count = int(self.find(QUERIES) or rows // 2)
        if not 0 < count <= 64:
            return
        ids = torch.full((2, count + self.n), token, device="cpu")
        ids[:, 1 : 1 + count] = token
        rest = self.tokens(self.n)
        ids[:, :1], ids[:, 1 + count :] = rest[:, :1], rest[:, 1:]
        inputs = {**text, "input_ids": ids, **image}
        if "attention_mask" in text:
            inputs["attention_mask"] = torch.ones_like(ids)
        if "mm_token_type_ids" in self.names:
            yield {**inputs, "mm_token_type_ids": (ids == token).long()}
        yield inputs

    def sounds(self) -> Iterator[Tensors]:
        """Spectrograms, either axis first, and samples."""
        bins = int(next(filter(None, map(self.find, BINS)), 80))
        if "input_features" in self.names:
            frames = 2 * int(self.find("max_source_positions") or FRAMES // 2)
            forms = [self.normal(2, bins, frames), self.normal(2, FRAMES, bins)]
            for form in forms:
                yield {"input_features": form}
                for mask in ("attention_mask", "input_features_mask", "feature_attention_mask"):
                    if mask in self.names:
                        size = form.shape[-1] if form is forms[0] else FRAMES
                        yield {
                            "input_features": form,
                            mask: torch.ones(2, size, dtype=torch.long, device="cpu"),
                        }
        if "input_values" in self.names:
            length = int(self.find("max_length") or FRAMES)
            for form in ((2, SAMPLES), (2, length, bins), (2, 1, SAMPLES), (2, 1, FRAMES, bins)):
                yield {"input_values": self.normal(*form)}


def _rows(features: Any) -> int:
    """How many rows stand for images, of whatever form."""
    for name in ("pooler_output", "last_hidden_state"):
        value = features.get(name) if hasattr(features, "get") else None
        if value is not None:
            features = value
            break
    if isinstance(features, list | tuple):
        return sum(_rows(one) for one in features)
    return int(features.numel() // features.shape[-1])
