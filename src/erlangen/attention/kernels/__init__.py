"""Kernels: functions of a query and a key that give attention its weights, normalised over N_i."""

from erlangen.attention.kernels.additive import Additive
from erlangen.attention.kernels.base import Kernel
from erlangen.attention.kernels.distances import Cosine, Gaussian
from erlangen.attention.kernels.features import RandomFeatures
from erlangen.attention.kernels.linear import Linear
from erlangen.attention.kernels.polynomial import Polynomial
from erlangen.attention.kernels.properties import violation
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
