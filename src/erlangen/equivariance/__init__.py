"""Equivariance of real layers: measured, judged, and read out of black boxes."""

from erlangen.equivariance.check import Check, check
from erlangen.equivariance.measure import Measurement, measure
from erlangen.equivariance.recover import Recovered, recover

__all__ = ["Check", "Measurement", "Recovered", "check", "measure", "recover"]
