"""Verifies a run while it is being written, with Structured Streaming, in bounded memory and across restarts."""

from .state import WatchState
from .verifier import Arrived, LogRows, Verifier
from .watch import Event, Watch

__all__ = ["Arrived", "Event", "LogRows", "Verifier", "Watch", "WatchState"]
