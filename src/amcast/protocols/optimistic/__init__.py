"""Optimistic Atomic Multicast (Bezerra et al. 2013): the baseline and the optimistic protocol."""

from .baseline import Baseline, BaselineConfig
from .entry import BaselineEntry, OptimisticEntry, home_group, senders_facts
from .messages import OptimisticMessage
from .oam import Optimistic, OptimisticConfig

__all__ = [
    "Baseline",
    "BaselineConfig",
    "BaselineEntry",
    "Optimistic",
    "OptimisticConfig",
    "OptimisticEntry",
    "OptimisticMessage",
    "home_group",
    "senders_facts",
]
