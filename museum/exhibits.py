"""Faults that were really released: the version that has one, the version that does not, and what to expect.

Run under the version of transformers to be audited: `python exhibits.py NAME` prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

SMALL: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
}  # fmt: skip
LENGTH = 12


@dataclass(frozen=True)
class Exhibit:
    """One fault: the model, the relation that is meant, and the two versions of transformers."""

    model: str
    expect: str
    bad: str
    fixed: str
    fault: str
    source: str
    options: dict[str, Any] = field(default_factory=dict)
    numpy: str | None = None
    """A version of numpy for the bad environment."""


DECODER = "is_decoder=True reads the future: no causal mask is made"
REPORTED = "https://github.com/huggingface/transformers"
DECODERS = f"{REPORTED}/issues/48745"
EXHIBITS: dict[str, Exhibit] = {
    "roformer-decoder": Exhibit(
        "RoFormer", "Causal()", "5.9.0", "5.22.2", DECODER, DECODERS,
        {"is_decoder": True, "embedding_size": 32},
    ),
    "rembert-decoder": Exhibit(
        "RemBert", "Causal()", "5.9.0", "5.22.2", DECODER, DECODERS,
        {"is_decoder": True, "input_embedding_size": 32, "output_embedding_size": 32},
    ),
    "megatron-bert-decoder": Exhibit(
        "MegatronBert", "Causal()", "5.9.0", "5.22.2", DECODER, DECODERS, {"is_decoder": True}
    ),
    "big-bird-decoder": Exhibit(
        "BigBird", "Causal()", "5.9.0", "5.22.2", DECODER, DECODERS,
        {"is_decoder": True, "attention_type": "original_full"},
    ),
    "doge-sdpa": Exhibit(
        "Doge", "Causal()", "5.9.0", "5.22.2",
        "under sdpa the dynamic mask replaces the causal one, so the future is read",
        f"{REPORTED}/issues/48748",
        {"num_key_value_heads": 4, "keep_window_size": 4096, "attn_implementation": "sdpa"},
    ),
    "qwen2-eager-window": Exhibit(
        "Qwen2", "Window(lookback=3)", "4.48.1", "4.49.0",
        "eager attention ignores the sliding window", f"{REPORTED}/issues/35924",
        {"num_key_value_heads": 2, "sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0,
         "attn_implementation": "eager"},
    ),
    "mistral-sdpa-window": Exhibit(
        "Mistral", "Window(lookback=3)", "4.39.3", "4.49.0",
        "sdpa attention ignores the sliding window", f"{REPORTED}/issues/28980",
        {"num_key_value_heads": 2, "sliding_window": 4, "attn_implementation": "sdpa"},
    ),
    "mistral-window-off-by-one": Exhibit(
        "Mistral", "Window(lookback=3)", "4.34.1", "4.35.2",
        "the sliding window is one position too wide", f"{REPORTED}/pull/26792",
        {"num_key_value_heads": 2, "sliding_window": 4}, numpy="1.26.4",
    ),
}  # fmt: skip


def measure(name: str) -> dict[str, Any]:
    """Audit one exhibit under the installed transformers."""
    import numpy
    import torch
    import transformers

    from erlangen.audit import audit
    from erlangen.relations.parse import parse

    exhibit = EXHIBITS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{exhibit.model}Config")(**{**SMALL, **exhibit.options})
    model = getattr(transformers, f"{exhibit.model}Model")(config).eval()
    tokens = torch.randint(5, 60, (2, LENGTH), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}
    report = audit(model, inputs, parse(exhibit.expect))
    first = report.counterexamples[0] if report.counterexamples else None
    return {
        "transformers": transformers.__version__,
        "numpy": numpy.__version__,
        "verdict": report.verdict,
        "calls": report.coverage.calls,
        "explained": report.coverage.explained,
        "module": None if first is None else first.module,
        "measured": str(report.calls[0].kernel),
        "edge": None if first is None else [first.query, first.key],
        "unchanged": report.unchanged,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(measure(sys.argv[1])))
