"""Assertions for your own tests. Each is imported when first used: importing this package is cheap."""

from typing import TYPE_CHECKING

from erlangen.packages import lazily

if TYPE_CHECKING:
    from erlangen.testing.equivariance import assert_equivariant
    from erlangen.testing.padding import assert_no_padding_leak
    from erlangen.testing.relations import AuditWarning, assert_causal, assert_relation
    from erlangen.testing.same import assert_same_relation

__all__ = [
    "AuditWarning",
    "assert_causal",
    "assert_equivariant",
    "assert_no_padding_leak",
    "assert_relation",
    "assert_same_relation",
]

__getattr__, __dir__ = lazily(__name__)
