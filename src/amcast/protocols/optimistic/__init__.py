"""Optimistic Atomic Multicast (Bezerra et al. 2013): the baseline and the optimistic protocol."""

from .baseline import Baseline
from .ingress import BaselineIngress, OptimisticIngress
from .oam import Optimistic

__all__ = ["Baseline", "BaselineIngress", "Optimistic", "OptimisticIngress"]
