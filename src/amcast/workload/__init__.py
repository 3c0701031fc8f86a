"""Workloads: what is multicast, by which clients, how fast. Sans-IO, like the protocols."""

from .clients import Load, LoadClient
from .micro import Micro

__all__ = ["Load", "LoadClient", "Micro"]
