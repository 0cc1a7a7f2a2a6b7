"""Making `attn_implementation="erlangen"` known to transformers."""

from __future__ import annotations

import sys
from typing import Any

import torch

from erlangen.errors import DataError, ParameterError

NAME = "erlangen"


def check_registry(config: Any) -> None:
    """Raise where the models of a configuration compute attention themselves, past the registry.

    They take any `attn_implementation` and go on as before, so that nothing would tell that erlangen is not
    used. Known by their module: it has attention classes of its own and does not know the registry.

    >>> import transformers
    >>> from transformers.models.bloom import modeling_bloom
    >>> check_registry(transformers.BloomConfig())
    Traceback (most recent call last):
    ...
    erlangen.errors.ParameterError: models of type 'bloom' compute attention themselves, not through the
    attention registry of transformers: attn_implementation="erlangen" would change nothing; use "eager"
    """
    if _past_the_registry(type(config).__module__):
        raise ParameterError(
            f"models of type {config.model_type!r} compute attention themselves, not through the attention "
            'registry of transformers: attn_implementation="erlangen" would change nothing; use "eager"'
        )


@torch.compiler.assume_constant_result
def _past_the_registry(configuration: str) -> bool:
    module = sys.modules.get(configuration.replace(".configuration_", ".modeling_"))
    if module is None or hasattr(module, "ALL_ATTENTION_FUNCTIONS"):
        return False
    own = [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    return any(name.endswith("Attention") for name in own)


def register() -> None:
    """Make `attn_implementation="erlangen"` work for every model that uses the attention registry.

    Registers the attention function and the mask function; calling it again changes nothing. The mask
    function hands over relations, not queries x keys booleans: causal, sliding windows, chunks, packed
    sequences and padding are recognised; a mask function of the user's own is evaluated into a dense one.

    >>> import torch, transformers
    >>> register()
    >>> config = transformers.BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1,
    ...                                  intermediate_size=16, vocab_size=9, attn_implementation="erlangen")
    >>> transformers.BertModel(config)(torch.tensor([[1, 2, 3]])).last_hidden_state.shape
    torch.Size([1, 3, 16])
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
    except ImportError as error:
        raise DataError(
            "the attention registry needs transformers with AttentionInterface and AttentionMaskInterface: "
            "pip install 'transformers>=5'"
        ) from error
    from erlangen.integrations.transformers.forward import attention_forward
    from erlangen.integrations.transformers.relation_mask import relation_mask

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, relation_mask)
