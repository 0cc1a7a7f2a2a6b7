"""Tokens that delimit documents: an end of sequence among the ids, from which the model makes its mask.

What delimits is structure, and no content: another token in its place joins two documents, of which an
expectation about the given ones knows nothing. Such a token is told by what it does: attention reads
otherwise where it is changed, and the same where everything else is. It then stays where it is, and what
stands there is changed behind the embedding, as content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from erlangen.audit.arguments.embedding import embedding_of
from erlangen.audit.arguments.sizes import named_tokens
from erlangen.audit.calls.streams import predict
from erlangen.audit.case import Case
from erlangen.audit.expect import Expectation, has_own_size
from erlangen.audit.flow_rules.structure import moved_rows, rows_read, undisturbed
from erlangen.audit.inputs import Content, Inputs, Pad, with_content
from erlangen.audit.obligations import Compared, Subject
from erlangen.audit.observed import Measured, Pass
from erlangen.audit.verdict import CallVerdict
from erlangen.audit.witnesses.flow import Flow
from erlangen.audit.witnesses.runs import Runner
from erlangen.relations import Neighborhoods

MOST = 4
"""So many tokens are tried."""


def about_this_content(expect: Expectation, calls: list[CallVerdict]) -> bool:
    """Whether what is expected is about the given content, so that other delimiters would have others."""
    return has_own_size(expect) or any(has_own_size(one.expected) for one in calls)


def without_delimiters(case: Case, content: Content, flows: list[Flow]) -> list[Flow]:
    """The flows, where what is expected is about the given documents, without what delimits these."""
    if case.expect is None or not about_this_content(case.expect, case.result.calls):
        return flows
    known = case.audit.delimiting.setdefault(content.name, set())
    hidden = not case.calls or bool(case.seen.unexplained)
    found = Delimiters(
        case.runner, content, case.calls,
        lambda inputs: case.audit.observed_on(case.feeding, inputs),
        lambda one: embedding_of(case.model, case.feeding.inputs, one, case.runner.on),
        {token for _, token in named_tokens(case.model)} if hidden else set(),
        known,
    )  # fmt: skip
    flows, notes, opened = found.taken_out(flows)
    case.audit.notes += [note for note in notes if note not in case.audit.notes]
    for reason in opened:
        case.open(Subject(Compared.DELIMITERS, input=content.name), reason)
    if known:
        case.kept[content.name] = found.kept()
    return flows


@dataclass(eq=False)
class Delimiters:
    """Finds the tokens of one input that delimit, under one feeding, and takes their part out of flows."""

    runner: Runner
    content: Content
    calls: list[Measured]
    observed: Callable[[Inputs], Pass]
    """An observed pass of the feeding on other inputs."""
    embedding: Callable[[Content], str | None]
    """The name of the module that embeds the tokens; None where none does."""
    named: set[int]
    """The tokens that the model names, where attention could not all be seen: these may delimit."""
    known: set[int]
    """The tokens that delimit; what is found is added."""

    late: bool = False
    """Whether time ended before every delimiter was looked at."""

    def taken_out(self, flows: list[Flow]) -> tuple[list[Flow], list[str], list[str]]:
        """The flows without what delimiters decide; notes; and what stays open."""
        content = self.content
        usual = content.pool is not None and (content.axis, content.batch_axis) == (1, 0)
        if not usual or content.tensor.dim() != 2 or content.embedding is not None or content.together:
            return flows, [], []
        if self.runner.inputs.vary is not None:
            return flows, [], []
        if self.named:
            return self._where_hidden(flows)
        tokens = self._suspected(flows) if self.calls else set[int]()
        if not tokens or len(tokens) > MOST:
            return flows, [], []
        notes, opened = [], []
        for token in sorted(tokens):
            if token not in self.known and not self._delimits(token):
                continue
            self.known.add(token)
            name = self._embedding()
            flows = self._without(token, name, flows)
            text = f"{content.name}: the token {token} decides which keys are read, and stayed where it is"
            if name is None:
                opened.append(
                    f"{text}: what else is read of it could not be told, for no module embeds it; embed "
                    "tokens by a module, or say vary=... to change them"
                )
            else:
                notes.append(
                    f"{text}: what stands there was changed behind the embedding {name or '(model)'}"
                )
        if self.late:
            opened.append(
                f"no time was left to look at every delimiter of {content.name}: give a larger budget"
            )
        return flows, notes, opened

    def _where_hidden(self, flows: list[Flow]) -> tuple[list[Flow], list[str], list[str]]:
        """The same where attention is not seen: what a token that the model names moves, and what is behind
        its embedding does not, may be structure, or be read."""
        opened, name = [], self._embedding()
        padding = set() if self.content.pad is None else {self.content.pad.token}
        for token in sorted((self.named & set(self.content.tensor.unique().tolist())) - padding):
            left = self._without(token, name, flows)
            if all(a.relations == b.relations for a, b in zip(left, flows, strict=True)):
                continue
            flows = left
            self.known.add(token)
            opened.append(
                f"{self.content.name}: the model names the token {token}, and rows move with it that do not "
                "with what is behind its embedding: it may delimit documents, or be read by rows of another "
                "one; no attention was seen that would tell: say vary=... to leave it where it is"
            )
        return flows, [], opened

    def kept(self) -> Content | None:
        """The content with the token that delimits kept where it is, and changed behind the embedding; None
        where that is not possible."""
        name = self._embedding() if len(self.known) == 1 and self.content.pad is None else None
        if name is None:
            return None
        (token,) = self.known
        return replace(self.content, pad=Pad(token, name), pool=self._others(token))

    def _suspected(self, flows: list[Flow]) -> set[int]:
        """The tokens at positions that rows depend on though no call carries that."""
        content, found = self.content, set[int]()
        ids = content.tensor.cpu().numpy()
        contents = self.runner.reading.contents
        for flow in flows:
            for b, seen in enumerate(flow.relations):
                if flow.pooled or seen.queries != content.length or len(flow.relations) != len(ids):
                    continue
                carried = predict(
                    self.calls, contents, content, seen.queries, lambda call, b=b: call.kernel.of_item(b),
                    owner=content.name,
                )  # fmt: skip
                if carried is not None:
                    found |= set(ids[b, np.unique((seen - carried).edges()[:, 1])].tolist())
        return found

    def _others(self, token: int) -> torch.Tensor:
        pool = self.content.pool
        assert pool is not None
        rest = pool[pool != token]
        return rest if len(rest) > 1 else pool

    def _delimits(self, token: int) -> bool:
        """Whether attention reads the same where all other tokens are others, and not where this one is."""
        content = self.content
        rest = replace(content, pool=self._others(token))
        fresh, here = rest.changed(range(content.length)), content.tensor == token
        return self._same(torch.where(here, content.tensor, fresh)) is True and (
            self._same(torch.where(here, fresh, content.tensor)) is False
        )

    def _same(self, ids: torch.Tensor) -> bool | None:
        """Whether all calls read the same on other ids; None where that cannot be said."""
        try:
            seen = self.observed(with_content(self.runner.inputs, self.content, ids))
        except Exception:
            return None
        if len(seen.calls) != len(self.calls):
            return None
        return all(a.kernel == b.kernel for a, b in zip(seen.calls, self.calls, strict=True))

    def _embedding(self) -> str | None:
        try:
            return self.embedding(self.content)
        except Exception:
            return None

    def _without(self, token: int, name: str | None, flows: list[Flow]) -> list[Flow]:
        """The flows, in which rows whose attention the token decides move with what is behind it alone."""
        content, n = self.content, self.content.length
        places = {place.name: place for place in self.runner.places()}
        dense = {
            flow.output: np.stack([item.dense() for item in flow.relations])
            for flow in flows
            if not flow.pooled and flow.relations[0].queries == n and len(flow.relations) == content.batch
        }
        before = [rows_read(call, n) for call in self.calls]
        behind = replace(content, embedding=name, pad=None)
        for j in np.flatnonzero((content.tensor == token).any(0).cpu().numpy()).tolist():
            if not any(matrix[:, :, j].any() for matrix in dense.values()):
                continue
            if self.runner.late:
                self.late = True
                for matrix in dense.values():
                    matrix[:, :, j] = False
                continue
            try:
                seen = self.observed(with_content(self.runner.inputs, content, content.changed(j)))
                output = None if name is None else self.runner.changed(behind, j)
            except Exception:
                continue
            after = [rows_read(call, n) for call in seen.calls]
            if len(after) != len(before):
                continue
            for b in range(content.batch):
                quiet = np.zeros(n, bool)
                if not self.named:
                    quiet = undisturbed(
                        [one[b % len(one)] for one in before if one is not None],
                        [one[b % len(one)] for one in after if one is not None], n,
                    )  # fmt: skip
                for key, matrix in dense.items():
                    moved = np.zeros(n, bool)
                    if output is not None:
                        moved = moved_rows(places[key], output, self.runner.base())[b]
                    matrix[b, :, j] = np.where(quiet, matrix[b, :, j], matrix[b, :, j] & moved)
        return [
            replace(flow, relations=tuple(map(Neighborhoods.from_dense, dense[flow.output])))
            if flow.output in dense
            else flow
            for flow in flows
        ]
