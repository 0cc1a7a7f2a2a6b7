"""`erlangen.attend`, so that models built with erlangen are audited like any other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from erlangen.audit.apis.attention_call import TensorCall, register
from erlangen.audit.capture.masking import MASKING, masks
from erlangen.audit.capture.watching import loaded
from erlangen.audit.support import Support
from erlangen.audit.witnesses.measured import Probe, one_hot_runs, read_off
from erlangen.relations import Full

if TYPE_CHECKING:
    from erlangen.audit.capture.session import Session


@register
@dataclass(eq=False)
class AttendCall(TensorCall):
    """One call of `erlangen.attend(q, k, v, relation)`, whatever its backend."""

    api = "attend"
    watches = "`erlangen.attend`, whatever its backend"
    declares = "the relation"

    function: Callable[..., Any]
    relation: Any
    """With its log-weights, if it has any."""
    options: dict[str, Any]

    @classmethod
    def watch(cls, session: Session) -> None:
        def record(
            run: Callable[..., Any],
            q: torch.Tensor,
            k: torch.Tensor,
            v: torch.Tensor,
            relation: Any = None,
            **options: Any,
        ) -> AttendCall:
            options = {name: options[name] for name in ("scale", "backend", "kernel") if name in options}
            if not getattr(options.get("kernel"), "exponential", True):
                del options["kernel"]  # at zero queries it may vanish, where e^0 = 1 reads every key
            call = cls.of(session, q, k, v, run, unpacked(relation), options)
            call.refuse_hiding()
            return call

        session.watch_function(loaded("erlangen.attention._attend", "attend"), record)

    @property
    def cache_key(self) -> None:
        """A relation may read the vectors themselves, and learned log-weights change in place."""

    def declared(self) -> Support:
        grid = self.relation.grid(self.batch, self.heads)
        of_vectors = self.relation.data_dependent
        q = self.query.reshape(self.batch, self.heads, *self.query.shape[-2:])
        k = self.key.reshape(self.batch, -1, *self.key.shape[-2:])
        bound: dict[Any, Any] = {}

        def at(b: int, h: int) -> Any:
            row = grid[b % len(grid)]
            member = row[h % len(row)]
            if of_vectors:
                return member.on(q[b, h], k[b, h * k.shape[1] // self.heads])
            if member not in bound:
                bound[member] = member.on(self.queries, self.keys)
            return bound[member]

        return Support(tuple(tuple(at(b, h) for h in range(self.heads)) for b in range(self.batch)))

    def measured(self) -> Probe:
        relation = self.relation.support
        if not relation.data_dependent:
            return read_off(self._weights(relation))
        # The keys chosen for a query stay the same when it shrinks, exactly so by a power of two; the scores
        # come close enough to zero that no weight underflows.
        query = self.query * 2.0**-24
        runs = one_hot_runs(
            lambda value: self.function(query, self.key, value, relation, **self.options), self.value
        )
        return read_off(self.folded(runs))

    def log_weights(self) -> torch.Tensor | None:
        weighted = self.relation.weights
        if weighted is None:
            return None
        values = self._values()
        if weighted.structured:
            rows, columns = (torch.arange(n, device=values.device) for n in (self.queries, self.keys))
            return values[:, columns - rows[:, None] + self.queries - 1][None]
        dense = torch.full(
            (values.shape[0], self.queries, self.keys), MASKING, dtype=torch.float64, device=values.device
        )
        edges = torch.from_numpy(weighted.support.on(self.queries, self.keys).edges())
        dense[:, edges[:, 0], edges[:, 1]] = values.double().detach()
        return dense[None]

    def alpha(self) -> torch.Tensor:
        return self._weights(self.relation)

    @classmethod
    def diagonal(cls, n: int) -> None:
        """No function mode sees it."""

    def _weights(self, relation: Any) -> torch.Tensor:
        return self.at_equal_scores(lambda q, k, v: self.function(q, k, v, relation, **self.options))

    def _values(self) -> torch.Tensor:
        """The log-weights: by offset where they are a function of it, otherwise by edge."""
        weighted = self.relation.weights
        if weighted.structured:
            values = weighted.toeplitz(self.queries, self.keys)
        else:
            values = weighted.per_edge(weighted.support.on(self.queries, self.keys))
        return values if isinstance(values, torch.Tensor) else torch.from_numpy(values)

    def refuse_hiding(self) -> None:
        """Log-weights count as zero where it is asked what is read, like any bias, unless they hide keys."""
        if self.relation.weights is None:
            return
        values = self._values()
        if bool(masks(values).any()):
            lowest, support = float(values.min()), self.relation.support
            raise ValueError(f"log-weights as low as {lowest:g} hide keys of the relation {support}")


def unpacked(relation: Any) -> Any:
    """What was given for a relation: what was packed for a call (`erlangen.pack`) is a relation again."""
    if relation is None:
        return Full()
    return relation.unpacked() if hasattr(relation, "unpacked") else relation
