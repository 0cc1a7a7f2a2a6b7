"""The former name of `erlangen.taxonomy`; it goes with version 0.3.

>>> import warnings
>>> with warnings.catch_warnings(record=True) as said:
...     warnings.simplefilter("always")
...     from erlangen.bias import classify
>>> str(said[0].message)
'erlangen.bias is now erlangen.taxonomy, and this name goes with version 0.3: import classify from there'
"""

import warnings
from typing import Any

from erlangen import taxonomy


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # asked for by the import system, not by a user
        raise AttributeError(name)
    value = getattr(taxonomy, name)
    warnings.warn(
        "erlangen.bias is now erlangen.taxonomy, and this name goes with version 0.3: "
        f"import {name} from there",
        DeprecationWarning,
        stacklevel=2,
    )
    return value
