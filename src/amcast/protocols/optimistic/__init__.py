"""Optimistic Atomic Multicast (Bezerra et al. 2013): the baseline and the optimistic protocol."""

from .baseline import Baseline, BaselineConfig
from .ingress import BaselineIngress, OptimisticIngress, home_group, senders_facts
from .messages import OptimisticMessage
from .oam import Optimistic, OptimisticConfig

__all__ = [
    "Baseline",
    "BaselineConfig",
    "BaselineIngress",
    "Optimistic",
    "OptimisticConfig",
    "OptimisticIngress",
    "OptimisticMessage",
    "home_group",
    "senders_facts",
]
