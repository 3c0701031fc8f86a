"""Workloads: what is multicast, by which clients, how fast. Sans-IO, like the protocols."""

from .clients import Load, LoadClient
from .liars import LyingClient
from .micro import Micro, parse_destinations

__all__ = ["Load", "LoadClient", "LyingClient", "Micro", "parse_destinations"]
