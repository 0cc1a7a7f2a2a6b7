"""Native attention over the edges of a relation: for irregular graphs, and for few queries."""

from __future__ import annotations

from functools import partial

from erlangen.attention import native
from erlangen.attention.backend import Cost, Rank, register
from erlangen.attention.call import Call
from erlangen.attention.products import NativeProducts

attend = partial(native.attend, native.by_edges)


@register
class EdgesBackend(NativeProducts):
    name = "edges"
    computes = "query by query over its runs of keys, native"
    scales = "the edges"
    vector = True
    per_edge = True
    attend = staticmethod(attend)

    def cost(self, call: Call) -> Cost:
        assert call.bound is not None
        edges = call.bound.num_edges
        return Cost(Rank.NATIVE, edges, f"edge by edge {edges} units of work")
