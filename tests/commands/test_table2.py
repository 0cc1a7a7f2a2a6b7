"""`erlangen table2`: verdicts come from measurement, so a wrong claim and a broken model both show."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import erlangen as er
from erlangen.cli import app
from erlangen.commands import table2
from erlangen.errors import DataError, ParameterError
from erlangen.models import BERT, ViT
from erlangen.paper.figure_5 import Layer, figure
from erlangen.paper.table2.architectures import BLOCKS, RING, TABLE2, N
from erlangen.paper.table2.measured import CLAIMS, Architecture, Implementation, Outcome, measure


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcome(claimed, *builds, model="a model"):
    listed = tuple(Implementation(f"build {i}", "torch", build) for i, build in enumerate(builds))
    return Outcome(Architecture(model, claimed, listed), tuple(measure(one) for one in listed))


def layered(*relations, heads=2, n=N):
    """A stack of layers with these relations, and vectors for it."""

    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(*(er.Attention(8, heads, r) for r in relations)), torch.randn(2, n, 8)

    return build


# ----------------------------------------------------------------------------------- the paper's rows

PAGE = Path(__file__).parents[2] / "docs" / "table2.md"
EXPECTED = {
    "GAT": (True, {"graph"}),
    "BERT": (True, {"full"}),
    "GPT": (True, {"total-order"}),
    "Unlimiformer": (False, {"full", "total-order", "graph"}),
    "ViT": (False, {"full"}),
    "T5": (False, {"full", "total-order", "bipartite"}),
}


@pytest.mark.parametrize("model", EXPECTED)
def test_every_implementation_of_a_row_measures_the_same(model):
    row = next(row for row in TABLE2 if row.model == model)
    found = Outcome(row, tuple(measure(one) for one in row.implementations))
    agrees, kinds = EXPECTED[model]
    measured = [one for one in found.implementations if one.missing is None]
    assert measured[-1].name == f"erlangen {model}"
    assert found.agrees is agrees
    for one in measured:
        assert set(one.kinds) == kinds, one.name
        assert not one.unexplained
        assert all(call.bounds[0].num_edges for call in one.calls)
    names = ", ".join(one.name for one in measured)
    if len(measured) == len(row.implementations):
        assert f"{model} ({names}): {found.why}." in PAGE.read_text(encoding="utf-8")
    if model == "GAT":
        for edges, bound in zip((RING, BLOCKS), measured[0].calls[0].bounds, strict=True):
            graph = er.Graph([(target, source) for source, target in edges], nodes=N) | er.Identity()
            assert bound == graph.on(N)
    if model == "ViT":
        assert "stride 8" in found.why
        assert "none of" in found.why
    if model == "T5":
        assert found.measured == ("self: Full()", "self: Causal()", "cross: Full()")
        assert measured[0].calls[-1].symmetry == "S12 x S9"
    if model == "Unlimiformer":
        assert [call.varies is not None for call in measured[0].calls if call.between == "cross"] == [
            True
        ] * 2


def test_the_claims_are_those_of_the_paper():
    assert {row.model: row.claimed for row in TABLE2} == {
        "GAT": "graph-based", "BERT": "self-attention", "GPT": "masked", "Unlimiformer": "sparse",
        "ViT": "strided", "T5": "encoder-decoder",
    }  # fmt: skip


# ------------------------------------------------------------------- verdicts follow the measurement


@pytest.mark.parametrize("claimed", CLAIMS)
def test_of_all_claims_only_the_right_one_agrees(claimed):
    """Full, causal, windowed and irregular layers: each agrees with its own claim and with no other."""
    cases = {"self-attention": er.Full(), "masked": er.Causal(), "strided": er.Window(lookback=3),
             "sparse": er.Random(3, seed=0)}  # fmt: skip
    for right, relation in cases.items():
        found = outcome(claimed, layered(relation))
        assert found.agrees is (claimed == right), found.why
        assert found.measured == (f"self: {found.implementations[0].calls[0].relation}",)


def test_a_broken_model_changes_the_verdict():
    config = {"vocab_size": 50, "context": N, "layers": 2, "heads": 4, "width": 32}

    def build(break_it):
        def made():
            torch.manual_seed(0)
            model = BERT(BERT.Config(**config)).eval()
            if break_it:
                layer = [m for m in model.modules() if isinstance(m, er.Attention)][1]
                whole = layer.forward
                layer.forward = lambda x, **options: whole(x, **options | {"relation": er.Causal()})
            return model, (torch.randint(5, 50, (2, N)),)

        return made

    assert outcome("self-attention", build(False)).agrees is True
    broken = outcome("self-attention", build(False), build(True))
    assert broken.agrees is False
    assert broken.why == (
        "3 of 4 attention calls are self-attention: 1 is masked attention (previous elements)"
    )


def test_a_vit_that_is_strided_would_agree_but_for_its_class_token():
    def build():
        torch.manual_seed(0)
        relation = er.Window(lookback=3)
        sizes = {"image_size": 16, "patch_size": 4, "channels": 1, "layers": 1, "heads": 2, "width": 8}
        return ViT(ViT.Config(**sizes, classes=3, relation=relation)).eval(), (torch.randn(2, 1, 16, 16),)

    found = outcome("strided", build)
    assert found.implementations[0].calls[0].kind == "sparse"
    assert found.agrees is False


def test_too_little_seen_leaves_a_claim_open():
    def fails():
        raise DataError("cannot be built")

    found = outcome("masked", fails)
    assert (found.agrees, found.why) == (None, "nothing was measured")
    assert found.implementations[0].lines() == [("", "cannot be built", "")]
    missing = measure(Implementation("someone's", "a_library_nobody_has", layered(er.Causal())))
    assert missing.missing == "a_library_nobody_has is not installed"
    assert outcome("masked", fails, layered(er.Causal())).agrees is True

    class Hidden(torch.nn.Module):
        def forward(self, x):
            return er.attend(x, x, x, er.Weighted(er.Causal(), torch.eye(6) * -1e9))

    hidden = outcome("masked", lambda: (Hidden(), torch.randn(2, 3, 6, 4)))
    assert hidden.agrees is None
    assert hidden.why == "1 attention calls were seen and not explained"
    # A layer of another kind refutes the claim, whatever was not explained.
    assert outcome("masked", lambda: (Hidden(), torch.randn(2, 3, 6, 4)), layered(er.Full())).agrees is False


def test_heads_of_different_kinds_are_of_no_kind():
    found = outcome("masked", layered(er.PerHead([er.Causal(), er.Full()])))
    assert (found.agrees, found.implementations[0].calls[0].kind) == (False, None)
    assert "of several kinds" in found.why


def test_claims_that_are_none_are_refused():
    with pytest.raises(ParameterError, match=r"claimed must be one of graph-based, .*; got 'dilated'"):
        Architecture("a model", "dilated", ())


# ------------------------------------------------------------------------------------- the command


@pytest.fixture
def small_table(monkeypatch):
    rows = (
        Architecture("One", "masked", (Implementation("a", "torch", layered(er.Causal(), er.Causal())),)),
        Architecture(
            "Two",
            "strided",
            (
                Implementation("b", "torch", layered(er.Full())),
                Implementation("c", "torch", layered(er.Window(2))),
                Implementation("d", "a_library_nobody_has", layered(er.Full())),
            ),
        ),
    )
    monkeypatch.setattr("erlangen.paper.table2.architectures.TABLE2", rows)


def test_json(small_table):
    result = CliRunner().invoke(app, ["table2", "--json"])
    assert result.exit_code == 0
    first, second = json.loads(result.stdout)
    assert set(first) >= {"model", "claimed", "measured", "agrees", "implementations"}
    assert (first["model"], first["claimed"], first["agrees"]) == ("One", "masked", True)
    assert first["measured"] == ["self: Causal()"]
    assert [call["kind"] for call in first["implementations"][0]["calls"]] == ["total-order"] * 2
    assert first["implementations"][0]["calls"][0]["symmetry"] == "trivial"
    assert (second["agrees"], second["implementations"][2]["missing"]) == (
        False,
        "a_library_nobody_has is not installed",
    )


def test_text_and_pictures(small_table, tmp_path):
    folder = tmp_path / "new"
    result = CliRunner().invoke(app, ["table2", "--figures", str(folder)])
    assert result.exit_code == 0
    for text in ("One", "masked", "2 self", "Causal()", "trivial", "a_library_nobody_has is not"):
        assert text in result.stdout, text
    assert "One (a): all 2 attention calls are masked attention (previous elements)." in result.stdout
    assert "Two (b, c): 1 of 2 attention calls is strided: 1 is self-attention" in result.stdout
    assert "1 of 2 claims agree with what was measured." in result.stdout
    for name in ("one.png", "two.png"):
        assert (folder / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    file = tmp_path / "file"
    file.touch()
    refused = CliRunner().invoke(app, ["table2", "--figures", str(file)])
    assert refused.exit_code == 2
    assert "--figures takes a directory" in refused.stderr


def test_pictures_show_every_edge_of_every_layer():
    cross = er.Full().on(3, 4)
    layers = [
        Layer("encoder", "self", ("Full()",), (er.Full().on(4),)),
        Layer("decoder", "self", ("Causal()",), (er.Causal().on(3),)),
        Layer("cross", "cross", ("Full()",), (cross,)),
    ]
    drawn = figure("T5", "", layers)
    lines = [len(part.get_segments()) for part in drawn.axes[0].collections if hasattr(part, "get_segments")]
    # Sixteen, six and twelve edges; the three states of the decoder also pass by what it reads.
    assert lines == [16, 6, 12, 3]
    assert [axes.get_title().split("\n")[0] for axes in drawn.axes[1:]] == [
        "self: Full()", "self: Causal()", "cross: Full()",
    ]  # fmt: skip
    instances = Layer("gat", "self", ("a", "b"), (er.Window(1).on(4), er.Full().on(4)))
    titles = [axes.get_title() for axes in figure("GAT", "", [instances]).axes]
    assert titles[:2] == ["instance 1", "instance 2"]


def test_the_module_is_a_command_like_the_others():
    assert callable(table2.table2)
    assert "table2" in CliRunner().invoke(app, ["--help"]).stdout
