"""Attention over a relation, and the plan that says how it is computed."""

from erlangen.attention import kernels
from erlangen.attention._attend import Plan, attend, plan
from erlangen.attention._pack import pack
from erlangen.attention.packing import PackedRelation
from erlangen.attention.ternary_attention import attend_triples

__all__ = ["PackedRelation", "Plan", "attend", "attend_triples", "kernels", "pack", "plan"]
