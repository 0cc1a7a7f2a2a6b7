"""Hugging Face transformers on erlangen: attention for its models, other relations for its layers."""

from erlangen.integrations.transformers.registration import register
from erlangen.integrations.transformers.replacement import Replacement, use_relation

__all__ = ["Replacement", "register", "use_relation"]
