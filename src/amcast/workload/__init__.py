"""Workloads: what is multicast, by which clients, how fast. Sans-IO, like the protocols."""

from .base import Draft, Geography, Seat, Stream, Touch, Workload, stream_random
from .clients import Load, LoadClient
from .gtpcc import Gtpcc
from .kinds import KINDS, AnyWorkload, workload_of
from .liars import LyingClient
from .micro import Micro, parse_destinations
from .social import Social

__all__ = [
    "KINDS",
    "AnyWorkload",
    "Draft",
    "Geography",
    "Gtpcc",
    "Load",
    "LoadClient",
    "LyingClient",
    "Micro",
    "Seat",
    "Social",
    "Stream",
    "Touch",
    "Workload",
    "parse_destinations",
    "stream_random",
    "workload_of",
]
