"""Kernels: functions of a query and a key that give attention its weights, normalised over N_i."""

from erlangen.attention.kernels.additive import Additive
from erlangen.attention.kernels.distances import Cosine, Gaussian
from erlangen.attention.kernels.features import Linear, RandomFeatures
from erlangen.attention.kernels.kernel import Kernel, violation
from erlangen.attention.kernels.polynomial import Polynomial
from erlangen.attention.kernels.softmax import SoftmaxDot

__all__ = [
    "Additive",
    "Cosine",
    "Gaussian",
    "Kernel",
    "Linear",
    "Polynomial",
    "RandomFeatures",
    "SoftmaxDot",
    "violation",
]
