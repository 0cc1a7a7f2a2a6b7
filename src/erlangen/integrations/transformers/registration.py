"""Making `attn_implementation="erlangen"` known to transformers."""

from __future__ import annotations

from functools import wraps
from typing import Any

from erlangen.errors import DataError
from erlangen.integrations.transformers.forward import attention_forward
from erlangen.integrations.transformers.past_the_registry import check_model
from erlangen.integrations.transformers.relation_mask import relation_mask

NAME = "erlangen"


def register() -> None:
    """Make `attn_implementation="erlangen"` work for every model that uses the attention registry.

    Registers the attention function and the mask function; calling it again changes nothing. A model that
    computes attention past the registry is then refused (`check_model`), where transformers would go on
    with its own attention. The mask
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
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
    except ImportError as error:
        raise DataError(
            "the attention registry needs transformers with AttentionInterface and AttentionMaskInterface: "
            "pip install 'transformers>=5'"
        ) from error
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, relation_mask)
    _ask_models(PreTrainedModel)


def _ask_models(base: Any) -> None:
    """Let models that are to use erlangen be checked: those past the registry would never call it."""
    found = base.get_correct_attn_implementation
    if getattr(found, NAME, False):
        return

    @wraps(found)
    def checked(self: Any, requested_attention: str | None, is_init_check: bool = False) -> str:
        name = found(self, requested_attention, is_init_check)
        if name == NAME:
            check_model(self, built=not is_init_check)
        return name

    setattr(checked, NAME, True)
    base.get_correct_attn_implementation = checked
