"""Workloads: what is multicast, by which clients, how fast. Sans-IO, like the protocols."""

from .base import Draft, Geography, Seat, Stream, Touch, Workload, stream_random
from .clients import Load, LoadClient
from .kinds import KINDS, AnyWorkload, workload_of
from .liars import LyingClient
from .micro import Micro, parse_destinations

__all__ = [
    "KINDS",
    "AnyWorkload",
    "Draft",
    "Geography",
    "Load",
    "LoadClient",
    "LyingClient",
    "Micro",
    "Seat",
    "Stream",
    "Touch",
    "Workload",
    "parse_destinations",
    "stream_random",
    "workload_of",
]
