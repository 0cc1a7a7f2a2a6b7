"""`erlangen audit` as a user calls it: what it prints, and how it exits."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
import torch
from typer.testing import CliRunner

from erlangen.audit.targets import resolve
from erlangen.cli import app
from erlangen.errors import DataError, ParameterError

pytest.importorskip("transformers")

FACTORY = """
import torch
from torch import nn
from torch.nn import functional as F


class Window(nn.Module):
    def __init__(self, lookback):
        super().__init__()
        self.lookback = lookback

    def forward(self, x):
        n = x.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).tril().triu(-self.lookback)
        return x + F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def build(n=8):
    return Window(3), torch.randn(2, n, 4)


def sequence():
    return nn.GRU(4, 4, batch_first=True), torch.randn(2, 6, 4)


def hidden():
    def forward(self, x):
        if torch._C._is_torch_function_mode_enabled():
            raise RuntimeError("not while watched")
        return x
    return type("Hidden", (nn.Module,), {"forward": forward})(), torch.randn(2, 6, 4)


class Translator(nn.Transformer):
    def __init__(self):
        super().__init__(8, 2, 1, 1, 16, batch_first=True)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return super().forward(src, tgt, tgt_mask=mask)


def translator():
    return Translator(), {"src": torch.randn(2, 7, 8), "tgt": torch.randn(2, 5, 8)}


def talkative():
    import warnings

    class Talkative(nn.Module):
        def forward(self, x):
            print("the model prints")
            return x + F.scaled_dot_product_attention(x, x, x)
    print("the model prints when it is built")
    warnings.warn("it warns", FutureWarning)
    return Talkative(), torch.randn(2, 6, 4)


def infinite():
    class Infinite(nn.Module):
        def forward(self, x):
            y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
            return torch.where(torch.arange(x.shape[1])[:, None] > 3, y / 0 - y / 0, y.cumsum(1).flip(1))
    return Infinite(), torch.randn(2, 6, 4)


def wrong():
    return 5


def broken():
    raise RuntimeError("on purpose")
"""


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "my_factory.py"
    path.write_text(FACTORY)
    return str(path)


def run(*arguments: str):
    return CliRunner().invoke(app, ["audit", *arguments], prog_name="erlangen")


def test_a_model_type_holds():
    result = run("transformers:gpt2", "--expect", "Causal()", "--n", "8")
    assert result.exit_code == 0
    assert "GPT2Model: holds" in result.stdout
    assert "coverage: 2 attention calls seen, 2 explained, 0 unexplained" in result.stdout


def test_a_violation_names_the_edge_and_exits_with_1(factory):
    result = run(f"{factory}:build", "--expect", "Window(lookback=2)")
    assert result.exit_code == 1
    assert "expected Window(lookback=2), measured Window(lookback=3); extra edge (3, 0)" in result.stdout


def test_json_has_exactly_the_promised_keys(factory):
    result = run(f"{factory}:build", "--expect", "Window(lookback=2)", "--json", "--n", "6")
    told = json.loads(result.stdout)
    assert list(told) == [
        "model", "verdict", "coverage", "calls", "flow", "warnings", "findings", "obligations", "tried",
        "not_tried", "not_judged",
    ]  # fmt: skip
    assert told["findings"]
    assert told["coverage"] == {"calls": 1, "explained": 1, "unexplained": 0}
    (call,) = told["calls"]
    assert list(call) == [
        "module", "kind", "queries", "keys", "heads", "declared", "kernel", "bias", "agree", "expected",
        "counterexample",
    ]  # fmt: skip
    assert (call["kind"], call["queries"], call["kernel"]) == ("self", 6, "Window(lookback=3)")
    assert (call["counterexample"]["query"], call["counterexample"]["key"]) == (3, 0)
    assert list(told["flow"]) == ["relation", "bias", "future_edges", "predicted", "outside_attention"]
    assert told["verdict"] == "violated"


def test_html_is_written_beside_the_table(factory, tmp_path):
    page = tmp_path / "report.html"
    result = run(f"{factory}:build", "--html", str(page))
    assert result.exit_code == 0
    assert f"wrote {page}" in result.stdout.replace("\n", "")
    assert "<h1>Window</h1>" in page.read_text()


def test_a_model_without_attention_gets_a_flow_verdict(factory):
    result = run(f"{factory}:sequence", "--expect", "Causal()")
    assert result.exit_code == 0
    assert "no attention; flow: total order" in result.stdout


def test_too_little_seen_exits_with_3(factory):
    result = run(f"{factory}:hidden", "--expect", "Full()", "--no-flow")
    assert result.exit_code == 3
    assert "undecided" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt2",), "TARGET is transformers:MODEL_TYPE"),
        (("transformers:gpt22",), "did you mean gpt2"),
        (("transformers:GPT2",), "no model type 'GPT2'; did you mean gpt2?"),
        (("transformers:openai/GPT2LMHeadModel",), "did you mean gpt2?"),
        (("transformers:XLM_Roberta",), "did you mean xlm-roberta?"),
        (("transformer:gpt2",), "did you mean transformers:MODEL_TYPE?"),
        (("transformers:gpt2", "--n", "1"), "at least 2"),
        (("transformers:gpt2", "--expect", "Causal("), "Causal("),
        (("transformers:gpt2", "--expect", "__import__('os')"), "__import__"),
        (("nothing.py:build",), "there is no file"),
        (("no_such_package_here:build",), "importing no_such_package_here failed"),
        (("transformers:gpt2", "--html", "/no/such/place/report.html"), "/no/such/place"),
    ],
)
def test_bad_usage_exits_with_2(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("wrong", "must return"),
        ("broken", "RuntimeError: on purpose"),
        ("missing", "has no function 'missing'"),
    ],
)  # fmt: skip
def test_bad_factories_exit_with_2(factory, name, says):
    result = run(f"{factory}:{name}")
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_length_needs_a_factory_that_takes_one(factory):
    result = run(f"{factory}:sequence", "--n", "9")
    assert result.exit_code == 2
    assert "takes no argument n" in result.stderr


@pytest.mark.parametrize(
    "model_type",
    ["bert", "gpt2", "t5", "bart", "vit", "llama", "mistral", "gemma2", "longformer", "gpt_neo", "falcon",
     "mamba", "xlm-roberta", "clip", "whisper"],
)  # fmt: skip
def test_model_types_are_built_small_and_run(model_type):
    model, inputs = resolve(f"transformers:{model_type}", 12)
    assert sum(p.numel() for p in model.parameters()) < 1_000_000
    with torch.no_grad():
        model(**inputs)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--html", "x.pdf"), "x.pdf does not end in .html"),
        (("--html", "{folder}.html"), "is a directory"),
        (("--expect", "encoder.*=Cusal()"), "--expect 'encoder.*=Cusal()': no relation is called 'Cusal'"),
        (("--expect", "AtMost(Causal()"), "--expect 'AtMost(Causal()'"),
        (("--expect", "AtMost(Causal()) & Window(3)"), "surrounds the whole expression"),
        (("--expect", "AtMost(AtMost(Causal()))"), "once"),
        (("--expect", "AtMost()"), "takes one relation"),
        (("--expect", "AtMost(__import__('os'))"), "__import__"),
        (("--expect", "*=__import__('os').system('x')"), "*=__import__('os').system('x')"),
        (("--expect", "=Causal()"), "no pattern before its ="),
        (("--expect", "Causal()", "--expect", "Full()"), "--expect '*=Causal()'"),
        (("--expect", "a=Causal()", "--expect", "a=Full()"), "the pattern 'a' was given before"),
        (("--expect", "*=ALiBi([0.5])"), "weights are measured, not expected: write Causal()"),
        (("--expect", "AtMost(Triangles(Full()))"), "ternary"),
        (("--feedings", "traning"), "no feeding 'traning'; did you mean training?"),
        (("--positions", "3,-1"), "got '3,-1'"),
        (("--budget", "-2"), "got -2"),
    ],
)
def test_what_is_mistyped_is_refused_before_any_work(tmp_path, monkeypatch, arguments, says):
    """The factory would fail, and is never called."""
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "never.py").write_text("raise RuntimeError('it ran')")
    monkeypatch.setenv("COLUMNS", "400")
    folder = str(tmp_path / "folder")
    result = run(f"{tmp_path}/never.py:build", *(one.format(folder=folder) for one in arguments))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert says in " ".join(result.stderr.split())
    assert "it ran" not in result.stderr


@pytest.mark.parametrize(
    ("expect", "verdict"),
    [
        (["encoder.*=Full()", "decoder.*.self_attn=Causal()", "*=Full()"], "holds"),
        (["encoder.*=Full()", "*.self_attn=Full()", "*=Full()"], "violated"),
        (["encoder.*=AtMost(Full())", "*.self_attn=AtMost(Causal())", "*=er.AtMost(Full())"], "holds"),
        (["encoder.*=AtMost(Causal())", "*.self_attn=Causal()", "*=Full()"], "violated"),
        (["encoder.*=Full()", "no_such.*=Causal()", "*=AtMost(Full())"], "undecided"),
    ],
)
def test_expectations_by_module(factory, expect, verdict):
    options = [part for one in expect for part in ("--expect", one)]
    result = run(f"{factory}:translator", *options, "--json", "--feedings", "shorter")
    told = json.loads(result.stdout)
    assert told["verdict"] == verdict
    assert result.exit_code == {"holds": 0, "violated": 1, "undecided": 3}[verdict]
    assert bool(told["findings"]) == (verdict == "violated")


def test_at_most_is_weaker_than_the_relation(factory):
    target = f"{factory}:build"
    assert run(target, "--expect", "AtMost(Causal())", "--feedings", "shorter").exit_code == 0
    assert run(target, "--expect", "Causal()", "--feedings", "shorter").exit_code == 1
    assert run(target, "--expect", "AtMost(Window(lookback=2))", "--feedings", "shorter").exit_code == 1


@pytest.mark.filterwarnings("default:it warns:FutureWarning")
def test_a_model_that_prints_and_warns_leaves_the_json_alone(factory):
    result = run(f"{factory}:talkative", "--json", "--expect", "Causal()", "--feedings", "training")
    told = json.loads(result.stdout)
    assert told["verdict"] == "violated"
    assert "the model prints" in result.stderr


def test_a_number_that_json_does_not_have_is_null(factory):
    """Half of the rows are NaN: JSON has no such number, and Python would write one."""
    result = run(f"{factory}:infinite", "--json", "--expect", "Causal()", "--feedings", "shorter")

    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    told = json.loads(result.stdout, parse_constant=refuse)
    assert told["verdict"] == "violated"
    assert {one["kind"] for one in told["findings"]} >= {"finite"}


def test_help_shows_examples():
    told = " ".join(run("--help").stdout.split())
    assert '--expect "encoder.*=Full()"' in told
    assert "AtMost(Causal())" in told


def test_building_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    resolve("transformers:gpt2", 4)
    assert torch.equal(before, torch.get_rng_state())


def test_what_cannot_be_built_is_said():
    with pytest.raises(DataError, match="write a factory"):
        resolve("transformers:bark")
    with pytest.raises(ParameterError, match="TARGET is"):
        resolve(":build")


def test_the_chapter_of_the_demo_says_what_table2_says(tmp_path):
    """Both read one table of architectures; of T5 they once said different things."""
    pytest.importorskip("torch_geometric")
    from rich.console import Console

    from erlangen.paper.demo.models_audited import chapter
    from erlangen.paper.table2.measured_once import Rows

    console = Console(width=160, file=StringIO())
    chapter(console, tmp_path)
    told = console.file.getvalue()
    outcomes = Rows().outcomes()
    models = [outcome.architecture.model for outcome in outcomes]
    verdicts = {model: re.search(rf"│ {model} .*│ (\S+) +│\n", told).group(1) for model in models}
    assert verdicts == {
        "GAT": "yes", "BERT": "yes", "GPT": "yes", "Unlimiformer": "no", "ViT": "no", "T5": "no",
    }  # fmt: skip
    said = {True: "yes", False: "no", None: "open"}
    assert verdicts == {outcome.architecture.model: said[outcome.agrees] for outcome in outcomes}
    assert "query 0 reads key 1" in told
    assert "2 of 6 attention calls are encoder-decoder" in told
    assert len(list(tmp_path.glob("audit-*.html"))) == len(models)


def test_the_chapter_of_the_demo_reads_the_table(tmp_path, monkeypatch):
    """Another claim in the table is another verdict in the demo; what is not installed is said."""
    from rich.console import Console

    from erlangen.paper.demo.models_audited import chapter
    from erlangen.paper.table2 import architectures
    from erlangen.paper.table2.measured import Architecture, Implementation

    bert = next(row for row in architectures.TABLE2 if row.model == "BERT").implementations[-1:]
    missing = (Implementation("nobody's", "a_library_nobody_has", bert[0].build),)
    rows = (
        Architecture("One", "masked", bert),
        Architecture("Two", "self-attention", missing + bert),
        Architecture("Three", "masked", missing),
    )
    monkeypatch.setattr(architectures, "TABLE2", rows)
    console = Console(width=160, file=StringIO())
    chapter(console, tmp_path)
    told = console.file.getvalue()
    found = {name: re.search(rf"│ {name} .*│ (\S+) +│\n", told).group(1) for name in ("One", "Two", "Three")}
    assert found == {"One": "no", "Two": "yes", "Three": "open"}
    assert "a_library_nobody_has is not installed" in told
    assert {path.name for path in tmp_path.glob("*.html")} == {"audit-one.html", "audit-two.html"}
