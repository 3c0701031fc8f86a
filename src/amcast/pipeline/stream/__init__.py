"""Verifies a run while it is being written, on Spark's Structured Streaming, in bounded memory and across restarts."""

from .state import WatchState
from .verifier import Arrived, DeliveryRows, Verifier
from .watch import Event, Watch

__all__ = ["Arrived", "DeliveryRows", "Event", "Verifier", "Watch", "WatchState"]
