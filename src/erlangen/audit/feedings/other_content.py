"""Other content at every position: relations that depend on the data show."""

from __future__ import annotations

from collections.abc import Iterator

from erlangen.audit.feeding import Feeding, Given, Way, register
from erlangen.audit.inputs import with_content


@register
class OtherContent(Way):
    """All content exchanged at once, seeded."""

    name = "other content"
    order = 40

    def make(self, given: Given) -> Iterator[Feeding]:
        if given.inputs.vary is not None or any(one.embedding is not None for one in given.reading.contents):
            return
        inputs = given.inputs
        for content in given.reading.contents:
            inputs = with_content(inputs, content, content.changed(range(content.length), seed=1))
        if given.reading.contents:
            yield given.feeding("other content", inputs, other_content=True, all_content=True)
