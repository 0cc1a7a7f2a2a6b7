"""Hugging Face transformers on erlangen: attention for its models, other relations for its layers."""

from erlangen.integrations.transformers.registry import register

__all__ = ["register"]
