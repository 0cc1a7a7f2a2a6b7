"""The paper reproduced: its statements as checks, Tables 1 and 2, figures, and the demo.

Nothing but the commands imports this package.
"""

from erlangen.paper.three_orders import Hierarchy, hierarchy

__all__ = ["Hierarchy", "hierarchy"]
