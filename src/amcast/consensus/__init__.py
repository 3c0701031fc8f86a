"""Ordering inside a group: one replicated log a group."""

from .base import Decided, Decision, Elected, Log, StateReceived, StateWanted
from .multipaxos import Learner, MultiPaxos, PaxosConfig, PaxosMessage, PaxosRecord
from .solo import Solo, SoloRecord

__all__ = [
    "Decided",
    "Decision",
    "Elected",
    "Learner",
    "Log",
    "MultiPaxos",
    "PaxosConfig",
    "PaxosMessage",
    "PaxosRecord",
    "Solo",
    "SoloRecord",
    "StateReceived",
    "StateWanted",
]
