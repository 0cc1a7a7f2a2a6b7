"""Inputs and outputs told by what they are and do, each class as a faulty and a right model."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import erlangen as er
from erlangen.audit import AtMost, Inputs, audit

pytestmark = pytest.mark.filterwarnings("ignore::erlangen.testing.relations.AuditWarning")
N, DIM = 12, 16
CAUSAL, FULL = er.Causal(), er.Full()
WITHIN = AtMost(CAUSAL)
VIOLATED, HOLDS = frozenset({"violated"}), frozenset({"holds"})
NOT_HOLDS, NOT_VIOLATED = frozenset({"violated", "undecided"}), frozenset({"holds", "undecided"})


def vectors(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*(shape or (2, N, DIM)), generator=torch.Generator().manual_seed(seed))


def tokens(low: int = 0, high: int = 20, n: int = N, seed: int = 2) -> torch.Tensor:
    return torch.randint(low, high, (2, n), generator=torch.Generator().manual_seed(seed))


class Parts(nn.Module):
    """Parts of small models, and a forward pass that is given."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.embed, self.other = (
            nn.Linear(DIM, DIM),
            nn.Embedding(24, DIM),
            nn.Embedding(24, DIM),
        )
        self.conv, self.head, self.qkv = nn.Conv1d(DIM, DIM, 3), nn.Linear(DIM, 20), nn.Linear(DIM, 3 * DIM)
        self.gru = nn.GRU(DIM, DIM, batch_first=True)
        self.run = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)

    def near(self, x: torch.Tensor, bad: bool) -> torch.Tensor:
        """A convolution over three positions, added; the bad one reads one later position."""
        return x + self.conv(F.pad(x.mT, (1, 1) if bad else (2, 0))).mT


def attend(x: torch.Tensor, mask: torch.Tensor | None = None, *, by_hand: bool = False) -> torch.Tensor:
    """Self-attention with a residual; the relation is causal unless a mask of pairs is given."""
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril() if mask is None else mask
    if by_hand:
        weights = (x @ x.mT / DIM**0.5).exp() * mask
        return x + weights / weights.sum(-1, keepdim=True) @ x
    return x + F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], attn_mask=_four(mask))[:, 0]


def _four(mask: torch.Tensor) -> torch.Tensor:
    return mask if mask.dim() == 2 else mask[:, None]


def named(forward: Callable[..., Any], *names: str) -> Parts:
    """A model whose forward pass has arguments of these names."""
    space: dict[str, Any] = {}
    exec(f"def run(self, {', '.join(names)}): return self.run(self, {', '.join(names)})", space)
    kind = type("Model", (Parts,), {"forward": space["run"]})
    return kind(forward)


@dataclass(frozen=True)
class Twin:
    """How both sides are built, and which verdicts are right for each."""

    build: Callable[[bool], tuple[nn.Module, Any, Any]]
    faulty: frozenset[str]
    correct: frozenset[str]


TWINS: dict[str, Twin] = {}


def twin(faulty: frozenset[str] = VIOLATED, correct: frozenset[str] = HOLDS) -> Callable[..., Any]:
    def register(build: Callable[[bool], tuple[nn.Module, Any, Any]]) -> Any:
        TWINS[build.__name__.replace("_", " ")] = Twin(build, faulty, correct)
        return build

    return register


# ---- ids that decide who reads whom, and carry content

DOCUMENTS = torch.tensor([[3] * 5 + [7] * 7] * 2)
PACKED = CAUSAL & er.Documents([5, 7])


def packed(ids: torch.Tensor) -> torch.Tensor:
    return (ids[:, :, None] == ids[:, None, :]) & torch.ones(ids.shape[1], ids.shape[1]).bool().tril()


@twin()
def document_ids_embedded(bad):
    def run(m, ids, documents):
        return attend(
            m.embed(ids) + m.near(m.other(documents), True) * bad + m.other(documents), packed(documents)
        )

    return named(run, "ids", "documents"), {"ids": tokens(), "documents": DOCUMENTS}, PACKED


@twin()
def document_ids_embedded_by_hand(bad):
    def run(m, ids, documents):
        ahead = F.embedding(documents.roll(-1, 1), m.other.weight)
        x = m.embed(ids) + F.embedding(documents, m.other.weight) + bad * ahead
        return attend(x, packed(documents))

    return named(run, "ids", "documents"), {"ids": tokens(), "documents": DOCUMENTS}, PACKED


@twin(faulty=NOT_HOLDS)
def segment_ids_as_numbers(bad):
    def run(m, x, segments):
        number = segments.float()
        number = number.mean(1, keepdim=True) if bad else number
        return attend(x + number[..., None], packed(segments))

    return named(run, "x", "segments"), {"x": vectors(), "segments": DOCUMENTS}, PACKED


@twin()
def document_ids_that_only_decide_the_mask(bad):
    def run(m, ids, documents):
        return attend(m.near(m.embed(ids), bad), packed(documents))

    return named(run, "ids", "documents"), {"ids": tokens(), "documents": DOCUMENTS}, WITHIN


@twin()
def document_ids_of_two_inputs(bad):
    """The ids of both decide, one is embedded."""

    def run(m, ids, documents, turns):
        x = m.embed(ids) + m.near(m.other(turns), True) * bad + m.other(turns)
        return attend(x, packed(documents) & packed(turns))

    turns = torch.tensor([[1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]] * 2)
    documents = torch.tensor([[0] * 5 + [1] * 7] * 2)
    return (
        named(run, "ids", "documents", "turns"),
        {"ids": tokens(), "documents": documents, "turns": turns},
        CAUSAL & er.Documents([2, 3, 3, 4]),
    )


# ---- booleans that carry content


@twin()
def flags_beside_vectors(bad):
    def run(m, x, flags):
        return attend(x) + m.near(flags[..., None].float().expand_as(x), bad)

    return named(run, "x", "flags"), {"x": vectors(), "flags": tokens() > 9}, WITHIN


@twin()
def flags_embedded_beside_tokens(bad):
    def run(m, ids, spoken):
        return attend(m.near(m.embed(ids) + m.other(spoken.long()), bad), by_hand=True)

    return named(run, "ids", "spoken"), {"ids": tokens(), "spoken": tokens() > 9}, WITHIN


@twin()
def boolean_features_beside_tokens(bad):
    def run(m, ids, features):
        return attend(m.embed(ids)) + m.near(features.float(), bad)

    return named(run, "ids", "features"), {"ids": tokens(), "features": vectors(seed=5) > 0}, WITHIN


@twin()
def bits_beside_a_condition(bad):
    def run(m, bits, condition):
        return attend(m.near(m.embed(bits.long()), bad) + condition[:, None])

    return named(run, "bits", "condition"), {"bits": tokens() > 9, "condition": vectors(2, DIM)}, WITHIN


@twin(correct=frozenset({"undecided"}))
def a_mask_that_is_embedded(bad):
    """It has the name of a padding mask, hides nothing, and its later entries are read."""

    def run(m, x, event_mask):
        return attend(x) + m.near(m.other(event_mask.long()), bad)

    return named(run, "x", "event_mask"), {"x": vectors(), "event_mask": tokens() > 9}, WITHIN


@twin(faulty=NOT_HOLDS)
def a_mask_that_hides_and_is_embedded(bad):
    def run(m, x, mask):
        return attend(x + m.near(m.other(mask.long()), bad), _pairs(mask))

    return named(run, "x", "mask"), {"x": vectors(), "mask": PADDED.bool()}, WITHIN


def _pairs(keep: torch.Tensor) -> torch.Tensor:
    n = keep.shape[1]
    return keep[:, None, :] & torch.ones(n, n).bool().tril() | torch.eye(n).bool()


# ---- content inside objects


class Sample:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Sealed:
    """Cannot be copied."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __copy__(self) -> Any:
        raise TypeError("not to be copied")

    __reduce_ex__ = None  # type: ignore[assignment]


class Table:
    """A table with named columns, as data loaders have: keys and items, and no attributes to set."""

    __slots__ = ("_columns",)

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self._columns = columns

    def keys(self):
        return self._columns.keys()

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._columns[name]

    def __setitem__(self, name: str, value: torch.Tensor) -> None:
        self._columns[name] = value

    def __copy__(self) -> Table:
        return Table(dict(self._columns))


for make in (Sample, SimpleNamespace, argparse.Namespace):

    @twin()
    def inside_an_object(bad, make=make):
        return Parts(lambda m, batch: attend(m.near(batch.x, bad))), (make(x=vectors(), name="a"),), WITHIN

    TWINS[f"inside {make.__name__}"] = TWINS.pop("inside an object")

    @twin()
    def beside_an_object(bad, make=make):
        run = lambda m, x, batch: attend(x) + m.near(batch.more.y, bad)  # noqa: E731
        return Parts(run), (vectors(), make(more=make(y=vectors(seed=4)))), WITHIN

    TWINS[f"nested in {make.__name__} beside a tensor"] = TWINS.pop("beside an object")


@twin()
def inside_slots(bad):
    run = lambda m, ids, batch: attend(m.embed(ids)) + m.near(batch.x, bad)  # noqa: E731
    return Parts(run), (tokens(), Slotted(vectors())), WITHIN


@twin()
def inside_a_table(bad):
    run = lambda m, ids, table: attend(m.embed(ids)) + m.near(table["x"], bad)  # noqa: E731
    return Parts(run), (tokens(), Table({"x": vectors()})), WITHIN


@twin(faulty=frozenset({"undecided"}), correct=frozenset({"undecided"}))
def inside_an_object_that_cannot_be_copied(bad):
    run = lambda m, ids, batch: attend(m.embed(ids)) + m.near(batch.x, bad)  # noqa: E731
    return Parts(run), (tokens(), Sealed(vectors())), WITHIN


@twin(faulty=frozenset({"undecided"}), correct=frozenset({"undecided"}))
def inside_an_array(bad):
    run = lambda m, ids, array: attend(m.embed(ids)) + m.near(torch.from_numpy(array), bad)  # noqa: E731
    return Parts(run), (tokens(), vectors().numpy()), WITHIN


# ---- integer outputs


@twin()
def predictions(bad):
    return Parts(lambda m, x: m.head(attend(m.near(x, bad))).argmax(-1)), (vectors(),), WITHIN


@twin()
def predictions_that_seldom_move(bad):
    """What leaks is too small to move a prediction at most positions."""

    def run(m, x):
        return (m.head(attend(x)) * 10 + 1e-3 * m.head(m.near(x, bad))).argmax(-1)

    return Parts(run), (vectors(),), WITHIN


@twin()
def predictions_beside_logits(bad):
    def run(m, x):
        y = attend(x)
        ahead = m.head(m.near(x, bad)) * 1e-3
        return {"ids": (m.head(y) * 10 + ahead).argmax(-1), "logits": m.head(y)}

    return Parts(run), (vectors(),), WITHIN


@twin()
def a_boolean_decision(bad):
    return Parts(lambda m, x: m.head(attend(m.near(x, bad)))[..., 0] > 0), (vectors(),), WITHIN


@twin()
def a_class_of_each_sequence(bad):
    return Parts(lambda m, x: m.head(attend(m.near(x, bad)).mean(1)).argmax(-1)), (vectors(),), WITHIN


@twin()
def best_of_several(bad):
    run = lambda m, x: m.head(attend(m.near(x, bad))).topk(2).indices + 1  # noqa: E731
    return Parts(run), (vectors(),), WITHIN


@twin()
def tokens_returned_as_they_are(bad):
    run = lambda m, ids: (attend(m.near(m.embed(ids), bad)), ids, torch.arange(ids.shape[1]))  # noqa: E731
    return Parts(run), (tokens(),), WITHIN


# ---- heads split and merged by a reshape


def heads(split: str, merge: str, causal: bool, layers: int = 1):
    def run(m, x):
        for _ in range(layers):
            b, n, _ = x.shape
            q, k, v = m.qkv(x).chunk(3, -1)
            if split == "wrong":
                q, k, v = (part.reshape(b, 2, n, DIM // 2) for part in (q, k, v))
            else:
                q, k, v = (part.view(b, n, 2, DIM // 2).transpose(1, 2) for part in (q, k, v))
            out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            x = x + (out.reshape(b, n, DIM) if merge == "wrong" else out.transpose(1, 2).reshape(b, n, DIM))
        return x

    return run


@twin()
def heads_split_and_merged_by_reshape(bad):
    way = "wrong" if bad else "right"
    return Parts(heads(way, way, True)), (vectors(),), CAUSAL


@twin()
def heads_split_by_reshape(bad):
    return Parts(heads("wrong" if bad else "right", "right", True)), (vectors(),), CAUSAL


@twin()
def heads_merged_by_reshape(bad):
    return Parts(heads("right", "wrong" if bad else "right", True)), (vectors(),), CAUSAL


@twin()
def heads_split_and_merged_by_reshape_in_an_encoder(bad):
    way = "wrong" if bad else "right"
    return Parts(heads(way, way, False, layers=2)), (vectors(),), FULL


@twin()
def heads_split_by_reshape_before_an_expected_window(bad):
    def run(m, x):
        b, n, _ = x.shape
        parts = m.qkv(x).chunk(3, -1)
        shape = (b, 2, n, DIM // 2) if bad else (b, n, 2, DIM // 2)
        q, k, v = (part.reshape(shape) if bad else part.reshape(shape).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.from_numpy(er.Window(4).on(n).dense()))
        return x + (out.reshape(b, n, DIM) if bad else out.transpose(1, 2).reshape(b, n, DIM))

    return Parts(run), (vectors(),), er.Window(4)


@twin(faulty=NOT_HOLDS)
def heads_split_and_merged_by_reshape_then_pooled(bad):
    way = "wrong" if bad else "right"
    run = heads(way, way, False)
    return Parts(lambda m, x: run(m, x).mean(1)), (vectors(),), FULL


@twin(correct=HOLDS, faulty=HOLDS)
def two_branches_beside_each_other(bad):
    """Neither side is faulty: what two branches read is not the product of what each reads."""
    mask = torch.from_numpy(er.Window(3).on(N).dense())

    def run(m, x):
        n = x.shape[1]
        return x + attend(m.linear(x), mask[:n, :n]) + attend(x if bad else m.linear(x) * 2, mask[:n, :n])

    return Parts(run), (vectors(),), er.Window(3)


# ---- sizes that a model holds in some object


class Chunked(nn.Module):
    """A sum over the past that, if bad, looks one ahead from the second chunk on; `size` finds the size."""

    def __init__(self, bad: bool, size: Callable[[nn.Module], int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(DIM, DIM)
        self.bad, self.find = bad, size

    def forward(self, x):
        y, size = self.linear(x).cumsum(1), self.find(self)
        later = torch.zeros_like(y)
        later[:, size:-1] = x[:, size + 1 :]
        return y + later if self.bad and x.shape[1] > size else y


def holding(bad: bool, size: Callable[[nn.Module], int], **held: Any) -> Chunked:
    model = Chunked(bad, size)
    for name, value in held.items():
        setattr(model, name, value)
    return model


class WithClassSize(Chunked):
    chunk_size = 20


class WithDefault(Chunked):
    def __init__(self, bad: bool) -> None:
        super().__init__(bad, lambda m: m.size)

    def forward(self, x, chunk_size=20):
        self.size = chunk_size
        return super().forward(x)


SIZES: dict[str, Callable[[bool], nn.Module]] = {
    "namespace": lambda bad: holding(bad, lambda m: m.args.chunk_size, args=SimpleNamespace(chunk_size=20)),
    "object": lambda bad: holding(bad, lambda m: m.options.window, options=Sample(window=20)),
    "dict": lambda bad: holding(bad, lambda m: m.options["chunk"], options={"chunk": 20}),
    "nested": lambda bad: holding(
        bad, lambda m: m.a.b["stride"], a=SimpleNamespace(b={"stride": 20, "dim": 16})
    ),
    "list of objects": lambda bad: holding(
        bad, lambda m: m.parts[1].chunk_size, parts=[Sample(), Sample(chunk_size=20)]
    ),
    "class attribute": lambda bad: WithClassSize(bad, lambda m: m.chunk_size),
    "tensor": lambda bad: holding(bad, lambda m: int(m.chunk_size), chunk_size=torch.tensor(20)),
    "partial": lambda bad: holding(
        bad, lambda m: m.scan.keywords["chunk_size"], scan=functools.partial(max, chunk_size=20)
    ),
    "default of forward": WithDefault,
}
for place, make_model in SIZES.items():

    @twin()
    def a_size(bad, make_model=make_model):
        return make_model(bad), (vectors(),), WITHIN

    TWINS[f"a size in a {place}"] = TWINS.pop("a size")


# ---- masks, flags and names

ONES = torch.ones(2, N, dtype=torch.long)
PADDED = ONES.clone()
PADDED[1, 8:] = 0


@twin()
def valid_as_integers(bad):
    def run(m, x, valid):
        return attend(m.linear(x), valid.bool()[:, None, :].expand(-1, x.shape[1], -1) | bad)

    return named(run, "x", "valid"), {"x": vectors(), "valid": PADDED}, FULL


@twin()
def keep_as_small_integers_in_a_causal_model(bad):
    def run(m, ids, keep):
        mask = _pairs(keep.bool())
        return attend(m.near(m.embed(ids), True) if bad else m.embed(ids), mask)

    inputs = {"ids": tokens(), "keep": PADDED.to(torch.int32)}
    return named(run, "ids", "keep"), inputs, WITHIN


@twin()
def valid_as_numbers_of_a_pooled_model(bad):
    def run(m, x, valid):
        y = attend(m.linear(x), valid.bool()[:, None, :].expand(-1, x.shape[1], -1))
        weights = valid[..., None].float() if not bad else torch.ones_like(valid)[..., None].float()
        return (y * weights).sum(1) / weights.sum(1)

    return named(run, "x", "valid"), {"x": vectors(), "valid": PADDED}, FULL


@twin()
def token_types_of_zeros_and_ones(bad):
    def run(m, ids, token_type_ids):
        return attend(m.near(m.embed(ids) + m.other(token_type_ids), bad))

    types = (torch.arange(N) >= 5).long()[None].repeat(2, 1)
    return named(run, "ids", "token_type_ids"), {"ids": tokens(), "token_type_ids": types}, WITHIN


@twin()
def decoder_inputs_called_targets(bad):
    def run(m, source, targets):
        y = attend(m.near(m.embed(targets), bad))
        memory = m.linear(source)
        return y + F.scaled_dot_product_attention(y[:, None], memory[:, None], memory[:, None])[:, 0]

    expect = lambda call: AtMost(CAUSAL) if call.kind == "self" else None  # noqa: E731
    return named(run, "source", "targets"), {"source": vectors(2, 9, DIM), "targets": tokens()}, expect


@twin()
def decoder_inputs_called_targets_of_equal_length(bad):
    def run(m, source, targets):
        return m.gru(m.near(m.embed(targets), bad))[0] + m.linear(source).mean(1, keepdim=True)

    return named(run, "source", "targets"), {"source": vectors(2, 9, DIM), "targets": tokens()}, WITHIN


@twin()
def the_only_input_is_called_labels(bad):
    return (
        named(lambda m, labels: attend(m.near(m.embed(labels), bad)), "labels"),
        {"labels": tokens()},
        WITHIN,
    )


@twin(correct=frozenset({"undecided"}))
def decoder_inputs_called_targets_with_a_loss(bad):
    def run(m, source, targets):
        y = attend(m.near(m.embed(targets), bad))
        memory = m.linear(source)
        y = y + F.scaled_dot_product_attention(y[:, None], memory[:, None], memory[:, None])[:, 0]
        logits = m.head(y)
        return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())

    expect = lambda call: AtMost(CAUSAL) if call.kind == "self" else None  # noqa: E731
    return named(run, "source", "targets"), {"source": vectors(2, 9, DIM), "targets": tokens()}, expect


@twin()
def targets_that_are_labels(bad):
    def run(m, idx, targets):
        logits = m.head(attend(m.embed(idx)) + bad * m.embed(targets))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return named(run, "idx", "targets"), {"idx": tokens(), "targets": tokens(seed=9)}, WITHIN


@twin(faulty=frozenset({"undecided"}))
def targets_without_a_loss(bad):
    def run(m, idx, targets):
        return m.head(attend(m.embed(idx)) + bad * m.embed(targets))

    return named(run, "idx", "targets"), {"idx": tokens(), "targets": tokens(seed=9)}, WITHIN


@twin()
def a_flag_called_mask(bad):
    run = lambda m, x, mask: attend(m.near(x, bad)) * (2 if mask else 1)  # noqa: E731
    return (
        named(run, "x", "mask"),
        {"x": vectors(), "mask": torch.tensor(True)},
        CAUSAL if not bad else WITHIN,
    )


@twin()
def a_flag_for_each_sequence_called_mask(bad):
    run = lambda m, x, mask: attend(m.near(x, bad)) * mask[:, None, None]  # noqa: E731
    return named(run, "x", "mask"), {"x": vectors(), "mask": torch.tensor([True, False])}, WITHIN


@twin()
def a_flag_that_says_whether_to_be_causal(bad):
    def run(m, ids, mask):
        full = torch.ones(ids.shape[1], ids.shape[1]).bool()
        causal = full.tril()
        pick = ~mask if bad else mask
        return attend(m.embed(ids), torch.where(pick[:, None, None], causal, full))

    return named(run, "ids", "mask"), {"ids": tokens(), "mask": torch.tensor([True, True])}, CAUSAL


@twin()
def a_flag_of_one_sequence(bad):
    def run(m, x, mask):
        return attend(m.near(x, bad)) * mask

    return (
        named(run, "x", "mask"),
        {"x": vectors(2, 2, DIM), "mask": torch.tensor([[True], [True]])[..., None]},
        WITHIN,
    )


# ---- lists of tensors, packed sequences


@twin()
def a_list_of_steps(bad):
    def run(m, steps):
        return attend(m.near(torch.stack(steps, 1), bad))

    return Parts(run), (list(vectors().unbind(1)),), WITHIN


@twin()
def a_list_of_streams(bad):
    def run(m, streams):
        return attend(m.near(sum(streams), bad))

    return Parts(run), ([vectors(), vectors(seed=4)],), WITHIN


@twin(faulty=NOT_HOLDS, correct=HOLDS)
def a_list_of_sequences(bad):
    """Of different lengths, as in a batch without padding."""

    def run(m, xs):
        return [attend(m.near(x[None], bad))[0] for x in xs]

    return Parts(run), ([vectors(12, DIM), vectors(9, DIM, seed=4)],), WITHIN


@twin(faulty=NOT_HOLDS, correct=NOT_VIOLATED)
def a_list_of_sequences_that_read_each_other(bad):
    def run(m, xs):
        mean = sum(x.mean(0) for x in xs)
        return [attend(x[None])[0] + bad * mean for x in xs]

    return Parts(run), ([vectors(12, DIM), vectors(9, DIM, seed=4)],), WITHIN


@twin()
def a_list_of_token_rows(bad):
    def run(m, rows):
        return attend(m.near(m.embed(torch.stack(rows)), bad))

    return Parts(run), (list(tokens().unbind(0)),), WITHIN


@twin()
def a_packed_sequence(bad):
    def run(m, packed):
        x, lengths = pad_packed_sequence(packed, batch_first=True)
        y = m.near(x, True) * bad + m.gru(pack_again(x, lengths))[0]
        return y

    def pack_again(x, lengths):
        return x

    return Parts(run), (pack_padded_sequence(vectors(), torch.tensor([12, 8]), batch_first=True),), WITHIN


@twin()
def a_packed_sequence_in_and_out(bad):
    def run(m, packed):
        out = m.gru(packed)[0]
        if bad:
            x, lengths = pad_packed_sequence(out, batch_first=True)
            out = pack_padded_sequence(m.near(x, True), lengths, batch_first=True, enforce_sorted=False)
        return out

    packed_in = pack_padded_sequence(vectors(), torch.tensor([8, 12]), batch_first=True, enforce_sorted=False)
    return Parts(run), (packed_in,), WITHIN


@twin()
def packed_items_that_read_each_other(bad):
    def run(m, packed):
        out = m.gru(packed)[0]
        data = out.data + out.data.mean(0) * bad
        return PackedSequence(data, out.batch_sizes, out.sorted_indices, out.unsorted_indices)

    return Parts(run), (pack_padded_sequence(vectors(), torch.tensor([12, 8]), batch_first=True),), WITHIN


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("side", ["faulty", "correct"])
def test_twins(name: str, side: str):
    one = TWINS[name]
    model, inputs, expect = one.build(side == "faulty")
    report = audit(model.eval(), inputs, expect)
    assert report.verdict in (one.faulty if side == "faulty" else one.correct), str(report)


def settled(model: nn.Module, inputs: Any, expect: Any, argument: str, **said: Any) -> None:
    """It stays open with a reason that names the argument, which then settles it."""
    report = audit(model.eval(), inputs, expect)
    assert report.verdict == "undecided", str(report)
    assert any(f"{argument}=" in str(one) for one in report.open), str(report)
    args, kwargs = (inputs, {}) if isinstance(inputs, tuple) else ((), inputs)
    report = audit(model, Inputs(args, kwargs, **said), expect)
    assert report.verdict == "holds", str(report)


def test_what_stays_open_is_settled_by_an_argument():
    def documents(m, ids, documents):
        return attend(m.embed(ids) + F.embedding(documents, m.other.weight[:2]), packed(documents))

    two = {"ids": tokens(), "documents": torch.tensor([[0] * 5 + [1] * 7] * 2)}
    settled(named(documents, "ids", "documents"), two, PACKED, "content", content=["ids"])
    model, inputs, expect = TWINS["a mask that is embedded"].build(False)
    settled(model, inputs, expect, "content", content=["x", "event_mask"])
    model, inputs, expect = TWINS["inside an array"].build(False)
    settled(model, inputs, expect, "content", content=["argument 0"])
    model, inputs, expect = TWINS["decoder inputs called targets with a loss"].build(False)
    settled(model, inputs, expect, "content", content=["source", "targets"])
    model = named(lambda m, x, labels: attend(x) + m.other(labels)[:, None], "x", "labels")
    inputs = {"x": vectors(), "labels": torch.tensor([1, 2])}
    settled(model, inputs, CAUSAL, "content", content=["x", "labels"])


def test_a_mask_named_as_padding_is_judged_as_such():
    model, inputs, expect = TWINS["a mask that is embedded"].build(False)
    report = audit(model, Inputs((), inputs, padding={"event_mask": "x"}), expect)
    assert report.verdict == "violated"  # it hides nothing


def test_numbers_in_loss_masks_are_no_padding():
    def run(m, ids, labels, loss_mask):
        logits = m.head(attend(m.embed(ids)))
        losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return logits, (losses * loss_mask.flatten()).sum() / loss_mask.sum()

    mask = torch.ones(2, N).long()
    mask[:, :4] = 0
    for given in (mask, mask.bool()):
        inputs = {"ids": tokens(), "labels": tokens(seed=5), "loss_mask": given}
        assert audit(named(run, "ids", "labels", "loss_mask"), inputs, CAUSAL).verdict == "holds"


def test_what_was_given_is_not_written_to():
    batch = SimpleNamespace(x=vectors(), more=[vectors(seed=3)])
    kept = batch.x, batch.more, batch.more[0], batch.x.clone()
    audit(Parts(lambda m, b: b.x.add_(1).cumsum(1) + b.more[0]), (batch,), WITHIN)
    assert all(a is b for a, b in zip((batch.x, batch.more, batch.more[0]), kept, strict=False))
    assert torch.equal(batch.x, kept[3])
