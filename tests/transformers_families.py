"""Families of transformers on "erlangen", measured against "eager".

`python tests/transformers_families.py` writes the table of docs/transformers.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from erlangen.audit.targets import inputs_for, small
from erlangen.integrations.transformers import forward, register

FAMILIES = [
    "albert", "bart", "beit", "bert", "biogpt", "bitnet", "clip_vision_model", "cohere", "deit",
    "dinov2", "distilbert", "electra", "ernie", "esm", "exaone4", "gemma", "gemma2", "gemma3_text",
    "glm4", "gpt2", "gpt_neox", "gpt_oss", "granite", "helium", "llama", "llama4_text", "m2m_100",
    "marian", "mistral", "mixtral", "modernbert", "mt5", "nomic_bert", "olmo2", "opt", "pegasus",
    "persimmon", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe", "roberta", "siglip_vision_model",
    "smollm3", "stablelm", "starcoder2", "t5", "vit", "wav2vec2", "whisper", "xlm-roberta",
]  # fmt: skip
N = 20  # longer than the windows and chunks of the small configurations
BOUND = 1e-5
"""Largest difference, relative to 1 + the largest number of a tensor."""

PAGE = Path(__file__).parents[1] / "docs" / "transformers.md"
BEGIN, END = "<!-- families -->\n", "<!-- end of families -->\n"


def build(family: str) -> Any:
    """A tiny model of the family, from its configuration, with seeded weights."""
    import transformers

    register()
    torch.manual_seed(0)
    config = small(transformers.CONFIG_MAPPING[family])
    if hasattr(config, "attention_chunk_size"):
        config.attention_chunk_size = 8
    return transformers.AutoModel.from_config(config).eval()


@contextmanager
def read_relations() -> Iterator[list[str]]:
    """What attention reads meanwhile, a text for each call."""
    calls: list[str] = []
    attend = forward._attend

    def listening(q, k, v, relation, bias, **options):
        calls.append(f"`{relation}`" + (" and a bias" if bias is not None else ""))
        return attend(q, k, v, relation, bias, **options)

    forward._attend = listening
    try:
        yield calls
    finally:
        forward._attend = attend


def run(model: Any, implementation: str, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """The output at real positions, and the gradients of all parameters."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    out = model(**inputs).last_hidden_state
    mask = inputs.get("attention_mask")
    if mask is not None and out.shape[:2] == mask.shape:
        out = out * mask[..., None]  # a padding query that reads nothing is zero here, the mean there
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def difference(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """The largest difference, relative to 1 + the largest number of its tensor."""
    assert len(one) == len(other) > 5
    pairs = zip(one, other, strict=True)
    return max(((a - b).abs().max() / (1 + a.abs().max())).item() for a, b in pairs)


def row(family: str) -> str:
    """Measures one family and gives its row of the table; raises where the numbers differ."""
    model = build(family)
    inputs = inputs_for(model, N)
    masked = "attention_mask" in inputs and inputs["attention_mask"].dim() == 2
    sides = ("left", "right") if masked else ()
    worst, read = 0.0, []
    for side in (None, *sides):
        given = dict(inputs)
        if side is not None:
            given["attention_mask"] = torch.ones_like(inputs["attention_mask"])
            given["attention_mask"][0, slice(0, 6) if side == "left" else slice(-6, None)] = 0
        expected = run(model, "eager", given)
        with read_relations() as calls:
            found = run(model, "erlangen", given)
        assert len(calls) >= 2, f"{family} called erlangen {len(calls)} times"
        read = sorted(set(calls)) if side is None else read
        worst = max(worst, difference(expected, found))
    if worst > BOUND:
        raise AssertionError(f'{family} on "erlangen" differs from "eager" by {worst:.1e}')
    return f"| {family} | {', '.join(read)} | {', '.join(sides) or '-'} |\n"


def rows_of_the_page() -> dict[str, str]:
    """The rows of the table, by family."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| ([\w-]+) \|.*\n", text, re.MULTILINE)
    lines = re.findall(r"^\| [\w-]+ \|.*\n", text, re.MULTILINE)
    return dict(zip(rows, lines, strict=True))


def write_page() -> None:
    """Measures every family and writes the table."""
    head = "| model type | its layers read | padding |\n|---|---|---|\n"
    table = head + "".join(map(row, FAMILIES))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.partition(END)[2])


if __name__ == "__main__":
    write_page()
