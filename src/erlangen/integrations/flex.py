"""FlexAttention: a `mask_mod` and a `BlockMask` from a relation, and a relation from a `BlockMask`.

They stand in `erlangen.attention.block_masks`, for the flex backend runs on them.
"""

from erlangen.attention.block_masks import MaskMod, block_mask, from_block_mask, from_bound, mask_mod

__all__ = ["MaskMod", "block_mask", "from_block_mask", "from_bound", "mask_mod"]
