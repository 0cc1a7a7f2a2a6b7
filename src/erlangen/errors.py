"""Every error erlangen raises on purpose. Each restates what was written and what was expected."""

from __future__ import annotations


class ErlangenError(Exception):
    """Base of all errors raised by erlangen.

    >>> issubclass(SizeError, ErlangenError) and issubclass(SizeError, ValueError)
    True
    """


class ParameterError(ErlangenError, ValueError):
    """A relation, layer or function was given a parameter outside its domain."""


class SizeError(ErlangenError, ValueError):
    """A relation cannot be bound to the sizes it was given."""


class DataError(ErlangenError, ValueError):
    """A data-dependent relation was bound without the data it depends on, or a data file is malformed."""


class ShapeError(ErlangenError, ValueError):
    """Tensors do not fit one another, or do not fit the relation."""


class ExpressionError(ErlangenError, ValueError):
    """The text of a relation is not an expression over the known names."""


class BackendError(ErlangenError, RuntimeError):
    """A backend was asked for by name and cannot compute this attention exactly."""
