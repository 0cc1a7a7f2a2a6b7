"""Hugging Face transformers on erlangen: attention for its models, other relations for its layers."""

from erlangen.integrations.transformers.layers import Replacement, use_relation
from erlangen.integrations.transformers.registry import register

__all__ = ["Replacement", "register", "use_relation"]
