"""Assertions for your own tests. Each is imported when first used: importing this package is cheap."""

from typing import TYPE_CHECKING

from erlangen.packages import lazily

if TYPE_CHECKING:
    from erlangen.testing.equivariance import assert_equivariant
    from erlangen.testing.padding import assert_no_padding_leak
    from erlangen.testing.relations import AuditWarning, assert_causal, assert_relation
    from erlangen.testing.same import assert_same_relation

_LAZY = {
    "AuditWarning": "erlangen.testing.relations",
    "assert_causal": "erlangen.testing.relations",
    "assert_equivariant": "erlangen.testing.equivariance",
    "assert_no_padding_leak": "erlangen.testing.padding",
    "assert_relation": "erlangen.testing.relations",
    "assert_same_relation": "erlangen.testing.same",
}
"""name -> the module it is imported from."""

__all__ = [
    "AuditWarning",
    "assert_causal",
    "assert_equivariant",
    "assert_no_padding_leak",
    "assert_relation",
    "assert_same_relation",
]

__getattr__, __dir__ = lazily(__name__, _LAZY)
