"""Ways of feeding a model the same kind of content: each file registers one. `audit` imports them all."""

from importlib import import_module
from pkgutil import iter_modules

from erlangen.audit.feeding import FEEDINGS

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")

__all__ = ["FEEDINGS"]
