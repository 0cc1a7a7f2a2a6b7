"""Attention over a relation, and the plan that says how it is computed."""

from erlangen.attention import kernels
from erlangen.attention._attend import attend
from erlangen.attention._pack import pack
from erlangen.attention._plan import Plan, plan
from erlangen.attention.prepared import PackedRelation
from erlangen.attention.triples import attend_triples

__all__ = ["PackedRelation", "Plan", "attend", "attend_triples", "kernels", "pack", "plan"]
