"""Table 2, Figure 5, appendix A, footnote 4 and S4: claims about models, measured on the models.

Every item audits real implementations (those of transformers and torch-geometric where installed, and
erlangen's own), or takes what the rows of Table 2 were measured to read.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from matplotlib.collections import LineCollection

from erlangen.audit.api import audit
from erlangen.models import S4, Bahdanau
from erlangen.paper.figure_5 import Layer, figure
from erlangen.paper.table2.architectures import unlimiformer
from erlangen.paper.table2.measured import CLAIMS, Call, Implementation, Measurement, measure
from erlangen.paper.theorems.apparatus import layer, output, rows
from erlangen.paper.theorems.item import Trial, statement
from erlangen.relations import Bipartite, Causal, Full

N = 6
LABEL = 4
"""The token that stands for a masked one; the words of the inputs start behind it."""
PLACES = (3, 7)
"""Which tokens are masked."""

EXPECTED = {
    "GAT": ("graph-based", True, {"graph"}),
    "BERT": ("self-attention", True, {"full"}),
    "GPT": ("masked", True, {"total-order"}),
    "Unlimiformer": ("sparse", False, {"full", "total-order", "graph"}),
    "ViT": ("strided", False, {"full"}),
    "T5": ("encoder-decoder", False, {"full", "total-order", "bipartite"}),
}
"""The paper's claim on each model, whether the measurement agrees, and which kinds of relation there are."""


def _measured(trial: Trial, model: str) -> list[Measurement]:
    """The implementations of a row that are installed; there must be one, with every call explained."""
    present = [one for one in trial.rows.outcome(model).implementations if one.missing is None]
    trial.exact(f"some {model} is installed", present)
    for one in present:
        trial.model(one.name, "every attention call is explained", one.calls and not one.unexplained)
    return present


def _reads(call: Call, keys: int) -> bool:
    """Whether every query of every head reads exactly so many keys."""
    return all((bound.degrees == keys).all() for bound in call.by_head)


@statement(
    "Table 2",
    paper="GAT uses graph-based attention, BERT self-attention, GPT masked, Unlimiformer sparse, ViT strided "
    "and T5 encoder-decoder attention",
    corrected="GAT, BERT and GPT: so measured. ViT: full attention over patches (the stride is in the patch "
    "embedding). Unlimiformer: nearest keys, which depend on the data, beside full and causal attention. T5: "
    "full, causal and bipartite, the last a third of its calls",
    printed="fails",
    meant="with correction",
)
def table_2(trial: Trial) -> None:
    refused, unused = [], []
    claims = {row.model: row.claimed for row in trial.rows.architectures}
    trial.exact(
        "the rows are the paper's", claims == {model: claim for model, (claim, *_) in EXPECTED.items()}
    )
    for model, (claimed, agrees, kinds) in EXPECTED.items():
        for one in _measured(trial, model):
            trial.model(one.name, f"its calls are {', '.join(sorted(kinds))}", set(one.kinds) == kinds)
        outcome = trial.rows.outcome(model)
        trial.exact(
            f"{model}, said to be {claimed}, is {'' if agrees else 'not '}so", outcome.agrees is agrees
        )
        if outcome.agrees is False:
            refused.append(f"{model}: {outcome.why}")
        if not any(call.kind == CLAIMS[claimed] for one in outcome.implementations for call in one.calls):
            unused.append(f"no call of {model} is {claimed}")
    for one in _measured(trial, "T5"):
        sizes = [(c.bounds[0].keys, c.bounds[0].queries) for c in one.calls if c.between == "cross"]
        for m, n in dict.fromkeys(sizes):
            joint = np.zeros((m + n, m + n), bool)
            joint[m:, :m] = next(c for c in one.calls if c.between == "cross").bounds[0].dense()
            trial.exact(
                "between its sequences: Bipartite",
                (Bipartite(m, n).on(m + n).dense() == joint).all(),
                n=m + n,
            )
    trial.refuted("; ".join(refused), len(refused) == 3)
    trial.not_meant("; ".join(unused), len(unused) == 2)


@statement(
    "Section 3.2: S4",
    paper="models like S4 use strided attention",
    corrected="S4 has no attention: it is a signed causal convolution, whose kernel does not depend on the "
    "data and reaches back to the first position",
    printed="fails",
    meant="fails",
)
def state_space(trial: Trial) -> None:
    torch.manual_seed(0)
    model = S4(S4.Config(features=1, outputs=1, layers=2, width=8)).eval()
    x = torch.randn(1, 12, 1, generator=torch.Generator().manual_seed(0))
    report = audit(model, x, variants=False)
    name = "erlangen S4"
    seen = len(report.calls) + len(report.coverage.unexplained)
    trial.model(name, "no attention call, explained or not", seen == 0)
    trial.model(
        name, "information flows along j <= i", report.flow is not None and report.flow.relation == Causal()
    )
    constant = rows(1).expand(N, -1)
    attended = output(layer("MaskedAttention"), constant)
    trial.close(
        "attention keeps constants: every row is W_V c", attended, layer("MaskedAttention").V(constant)
    )
    with torch.no_grad():
        made: Any = model.blocks[0].s4.double()
        kernel = made.kernel(12)
        answer = made(torch.ones(12, kernel.shape[0], dtype=torch.float64))
    far = bool((kernel.abs() > 1e-9).all())
    trial.model(name, "its kernel reaches back to the first position in every channel", far)
    spread = float((answer[1:] - answer[:1]).abs().max())
    trial.model(name, "it does not keep constants", spread > 1e-4)
    negative = float(kernel.min())
    trial.gap(
        f"S4 makes {seen} attention calls; its kernel has the weight {negative:.2g}, which no softmax gives, "
        f"and of a constant input it makes rows that differ by {spread:.2g}",
        seen == 0 and negative < -1e-4 and spread > 1e-4 and far,
    )


@statement(
    "Appendix A.1",
    paper="BERT lets all tokens relate in both directions, without a mask, in several heads",
    corrected="every call of every layer reads all pairs, in every head",
    printed="holds",
    meant="holds",
)
def appendix_bert(trial: Trial) -> None:
    for one in _measured(trial, "BERT"):
        for call in one.calls:
            everything = all(bound == Full().on(bound.queries, bound.keys) for bound in call.by_head)
            trial.model(one.name, f"{call.module} reads all pairs in every head", everything)
            trial.model(one.name, f"{call.module} has several heads", call.heads > 1)
            trial.model(one.name, f"{call.module} is self-attention", call.between == "self")


@statement(
    "Appendix A.2",
    paper="GPT, a decoder alone, limits the connections of a token to the tokens before it",
    corrected="to itself and the tokens before it, in every call; there is no second sequence. (The appendix "
    "cites Transformer-XL here; Table 2 cites GPT.)",
    printed="holds",
    meant="holds",
)
def appendix_gpt(trial: Trial) -> None:
    for one in _measured(trial, "GPT"):
        for call in one.calls:
            n = call.bounds[0].queries
            past = all(np.array_equal(bound.dense(), np.tri(n, dtype=bool)) for bound in call.by_head)
            trial.model(one.name, f"{call.module} reads j <= i in every head", past)
            trial.model(one.name, f"{call.module} is self-attention", call.between == "self")


@statement(
    "Appendix A.3",
    paper="T5 joins an encoder with self-attention and a decoder with masked attention by encoder-decoder "
    "attention; Bahdanau's model does so with recurrent layers",
    corrected="three relations, and no other call: full in the encoder, causal in the decoder, every decoder "
    "position reads every encoder state. Bahdanau's decoder reads all source states at each step, between "
    "two GRUs",
    printed="holds",
    meant="holds",
)
def appendix_t5(trial: Trial) -> None:
    for one in _measured(trial, "T5"):
        found = {(call.between, call.kind) for call in one.calls}
        expected = {("self", "full"), ("self", "total-order"), ("cross", "bipartite")}
        trial.model(one.name, "full, causal and bipartite calls", found == expected)
        cross = [call.bounds[0] for call in one.calls if call.between == "cross"]
        lengths = {(call.kind, call.bounds[0].queries) for call in one.calls if call.between == "self"}
        ends = {("full", b.keys) for b in cross} | {("total-order", b.queries) for b in cross}
        trial.model(one.name, "the encoder is full, the decoder causal", lengths == ends)
    torch.manual_seed(0)
    model = Bahdanau(Bahdanau.Config(source_vocab=9, target_vocab=9, width=8)).eval()
    tokens = torch.randint(0, 9, (2, 6), generator=torch.Generator().manual_seed(0))
    report = audit(model, (tokens, tokens[:, :4]), variants=False, flow=False)
    steps = [(call.queries, call.keys, call.kernel) for call in report.calls]
    trial.model("erlangen Bahdanau", "each step reads every source state", steps == [(1, 6, Full())] * 4)
    recurrent = [type(part).__name__ for part in (model.encoder, model.decoder)]
    trial.model("erlangen Bahdanau", "encoder and decoder are recurrent", recurrent == ["GRU", "GRUCell"])


@statement(
    "Appendix A.4",
    paper="each attention head of Unlimiformer reads only the k nearest tokens, and other heads may read "
    "others",
    corrected="so does each head that reads the input from the decoder, and its k keys follow the instance. "
    "The encoder reads all of its chunk and the decoder all of its past. Measured on erlangen's "
    "implementation",
    printed="with correction",
    meant="holds",
)
def appendix_unlimiformer(trial: Trial) -> None:
    for one in _measured(trial, "Unlimiformer"):
        cross = [call for call in one.calls if call.between == "cross"]
        others = [call for call in one.calls if call.between == "self"]
        k = int(cross[0].by_head[0].degrees[0]) if cross else 0
        trial.model(
            one.name,
            "there are cross calls, over more keys than k",
            cross and 0 < k < cross[0].bounds[0].keys,
        )
        for call in cross:
            trial.model(one.name, f"{call.module}: every head reads {k} keys", _reads(call, k))
            trial.model(one.name, f"{call.module}: heads read others", len(set(call.by_head)) > 1)
            trial.model(one.name, f"{call.module}: the keys follow the instance", call.varies is not None)
        wide = [call for call in others if not _reads(call, k)]
        trial.model(
            one.name, "the others are full or causal", {c.kind for c in others} == {"full", "total-order"}
        )
        trial.refuted(
            f"{len(wide)} of {len(one.calls)} calls of {one.name} do not read k = {k} keys: "
            f"{', '.join(dict.fromkeys(call.relation for call in wide))} within the encoder and within the "
            "decoder",
            wide,
        )


@statement(
    "Appendix A.5",
    paper="ViT cuts an image into patches and uses strided attention to limit which patches relate",
    corrected="the patches are tokens, and every call relates all of them: the stride is that of the "
    "convolution that cuts the patches, and limits nothing in attention",
    printed="fails",
    meant="fails",
)
def appendix_vit(trial: Trial) -> None:
    told = []
    for one in _measured(trial, "ViT"):
        n = one.calls[0].bounds[0].queries
        trial.model(one.name, "tokens are patches and one class token", n == (32 // 8) ** 2 + 1)
        trial.model(
            one.name,
            "a convolution with the stride of the patches",
            any("stride 8" in s for s in one.strides),
        )
        heads = [bound for call in one.calls for bound in call.by_head]
        trial.model(one.name, "every head reads all pairs", all(bound.dense().all() for bound in heads))
        told.append(f"{one.name}: all {len(heads)} heads read {heads[0].num_edges} of {n * n} pairs")
    trial.gap(f"{'; '.join(told)}. A window of previous patches leaves out every pair ahead", told)


@statement(
    "Footnote 4",
    paper="a masked language model such as BERT masks tokens, by a label in their place, and not the "
    "attention matrix",
    corrected="with labels in place of two tokens every call still reads all pairs, the labels among them, "
    "and what is said at a label depends on every token. An attention mask at the same places takes their "
    "columns away",
    printed="holds",
    meant="holds",
)
def footnote_4(trial: Trial) -> None:
    for one in trial.rows.named("BERT").implementations:
        if find_spec(one.library) is None:
            continue
        model, inputs = one.build()
        words, labelled, hidden = _masked_inputs(inputs)
        before = audit(model, words, variants=False, flow=False)
        after = audit(model, labelled, variants=False)
        for told, report in (("as it is", before), ("with labels", after)):
            bounds = [bound for call in report.calls for bound in call.measured.kernel.unique]
            full = bounds and all(bound == Full().on(bound.queries, bound.keys) for bound in bounds)
            trial.model(
                one.name, f"{told} every call reads all pairs", full and not report.coverage.unexplained
            )
        depends = after.flow is not None and after.flow.relation == Full()
        trial.model(one.name, "what is said at a label depends on every token", depends)
        if hidden is not None:
            report = audit(model, hidden, variants=False, flow=False)
            bounds = [bound for call in report.calls for bound in call.measured.kernel.unique]
            columns = [np.flatnonzero(~bound.dense().any(0)).tolist() for bound in bounds]
            trial.model(
                one.name,
                "an attention mask takes columns away",
                columns and all(c == [*PLACES] for c in columns),
            )
    trial.exact("some BERT was audited", trial.models)


def _masked_inputs(inputs: Any) -> tuple[Any, Any, Any]:
    """Inputs as they are, with labels in place of two tokens, and with these hidden by an attention mask."""
    if isinstance(inputs, tuple):
        ids = inputs[0].clone()
        ids[:, list(PLACES)] = LABEL
        return inputs, (ids, *inputs[1:]), None
    ids, mask = inputs["input_ids"].clone(), inputs["attention_mask"].clone()
    ids[:, list(PLACES)] = LABEL
    mask[:, list(PLACES)] = 0
    return inputs, {**inputs, "input_ids": ids}, {**inputs, "attention_mask": mask}


@statement(
    "Figure 5",
    paper="A: BERT connects all tokens; B: GPT previous ones only; C: T5 encoder to decoder; D: Unlimiformer "
    "k = 2 tokens, others in other heads; E: ViT by strides",
    corrected="A to D as told, drawn from the measurement edge by edge; D for the heads that read the input. "
    "E: every patch connects to every patch",
    printed="with correction",
    meant="with correction",
)
def figure_5(trial: Trial) -> None:
    panels = {"A": "BERT", "B": "GPT", "C": "T5", "E": "ViT"}
    first = {panel: _measured(trial, model)[0] for panel, model in panels.items()}
    first["D"] = measure(Implementation("erlangen Unlimiformer, k = 2", "erlangen", lambda: unlimiformer(2)))
    for panel, one in first.items():
        layers = [Layer(c.module, c.between, c.relations[:1], c.bounds[:1]) for c in one.calls]
        lines = [
            p for p in figure(panel, one.name, layers).axes[0].collections if isinstance(p, LineCollection)
        ]
        drawn = sum(len(part.get_segments()) for part in lines)
        edges = sum(c.bounds[0].num_edges for c in one.calls)
        passing = sum(c.bounds[0].queries for c in one.calls if c.between == "cross")
        trial.model(one.name, "every edge is drawn, and no other", drawn == edges + passing and edges > 0)
    kinds = {panel: set(one.kinds) for panel, one in first.items()}
    trial.model(first["A"].name, "all tokens", kinds["A"] == {"full"})
    trial.model(first["B"].name, "previous tokens", kinds["B"] == {"total-order"})
    trial.model(first["C"].name, "encoder to decoder", "bipartite" in kinds["C"])
    cross = [call for call in first["D"].calls if call.between == "cross"]
    two = cross and all(_reads(call, 2) and len(set(call.by_head)) > 1 for call in cross)
    trial.model(first["D"].name, "2 keys for each query and head, not the same in all heads", two)
    trial.gap(
        f"E: the calls of {first['E'].name} are {', '.join(kinds['E'])}: no stride", kinds["E"] == {"full"}
    )
