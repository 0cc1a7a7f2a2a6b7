"""Bridges to other libraries; each module is imported when it is first used, and its library with it.

>>> import erlangen as er
>>> er.integrations.graphs.to_edge_index(er.Causal().on(2)).tolist()
[[0, 0, 1], [0, 1, 1]]
"""

from typing import TYPE_CHECKING

from erlangen.packages import lazily

if TYPE_CHECKING:
    from erlangen.integrations import flex, graphs, masks, pyg, transformers

__all__ = ["flex", "graphs", "masks", "pyg", "transformers"]

__getattr__, __dir__ = lazily(__name__)
