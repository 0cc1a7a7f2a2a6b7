"""Attention over a relation, and the plan that says how it is computed."""

from erlangen.attention import kernels
from erlangen.attention.attend import attend
from erlangen.attention.plan import Plan, plan
from erlangen.attention.triples import attend_triples

__all__ = ["Plan", "attend", "attend_triples", "kernels", "plan"]
