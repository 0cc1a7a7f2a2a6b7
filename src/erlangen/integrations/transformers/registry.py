"""Making `attn_implementation="erlangen"` known to transformers."""

from __future__ import annotations

from erlangen.errors import DataError

NAME = "erlangen"


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
