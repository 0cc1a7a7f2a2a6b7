"""Other content at every position: relations that depend on the data show."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.feedings.feeding import Feeding, Given
from erlangen.audit.inputs import with_content


def feedings(given: Given) -> Iterator[Feeding]:
    """All content exchanged at once, seeded."""
    if given.inputs.vary is not None or any(one.embedding is not None for one in given.reading.contents):
        return
    inputs = given.inputs
    for content in given.reading.contents:
        inputs = with_content(inputs, content, content.changed(range(content.length), seed=1))
    if given.reading.contents:
        yield given.feeding("other content", inputs)
