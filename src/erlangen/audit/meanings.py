"""What a padding mask may mean: no model's word stands against a name that says it, or against an item of
which nothing would be left."""

from __future__ import annotations

from dataclasses import replace

from erlangen.audit.reading import Mask, Reading


def meant(mask: Mask, hides: bool, found: Reading) -> Mask:
    """The mask with the meaning that was measured, unless that cannot be what is meant.

    `attention_mask` is 1 where a position is real, whatever the model does with it; and nobody gives a
    sequence of which every position is padding. A model that takes the mask upside down would otherwise be
    right by definition: it is judged by what is meant.
    """
    measured = replace(mask, hides=hides, measured=True)
    if hides == mask.hides:
        return measured
    named = mask.name.rpartition(".")[2].endswith("attention_mask")
    nothing_left = not bool(measured.real().any(axis=-1).all())
    if not named and not nothing_left:
        return measured
    why = "its name says" if named else "nothing would be left of an item otherwise, so that"
    note = (
        f"{mask.name}: positions with the value {int(hides)} are read by no other row, although {why} "
        f"{int(hides)} is what is real"
    )
    found.notes[:] = list(dict.fromkeys([*found.notes, note]))
    return mask


def open_where_nothing_is_real(found: Reading) -> Reading:
    """A mask that leaves no position real leaves nothing to compare, and that is said."""
    for mask in found.masks:
        if not bool(mask.real().any()):
            found.opened[mask.name] = (
                f"{mask.name} marks every position of {mask.content} as padding, so that nothing could be "
                "compared: give some that are real"
            )
    return found
