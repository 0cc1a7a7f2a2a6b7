"""The symmetry group of a relation, exactly: what a layer with this relation is equivariant to.

The package is callable, as its function `symmetry` (below, or `help(erlangen.symmetry.symmetry)`):

    erlangen.symmetry(relation, n=None, *, keys=None, joint=True, budget=10.0) -> Group
"""

from erlangen.packages import make_callable
from erlangen.symmetry.group import Group
from erlangen.symmetry.symmetries import stack_symmetry, symmetry
from erlangen.symmetry.translations import Translations, translations

__all__ = ["Group", "Translations", "stack_symmetry", "symmetry", "translations"]

make_callable(__name__)
