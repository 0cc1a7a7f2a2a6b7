"""Kernels: functions of a query and a key that give attention its weights, normalised over N_i."""

from erlangen.attention.kernels.additive import Additive
from erlangen.attention.kernels.base import Kernel
from erlangen.attention.kernels.softmax import SoftmaxDot

__all__ = ["Additive", "Kernel", "SoftmaxDot"]
