"""Ordering inside a group: one replicated log a group."""

from .base import Decided, Decision, Elected, Log, LogWire, SnapshotDue, StateReceived, StateWanted
from .multipaxos import Learner, MultiPaxos, PaxosConfig, PaxosMessage, PaxosRecord, RemoteLearner
from .solo import Solo, SoloRecord

__all__ = [
    "Decided",
    "Decision",
    "Elected",
    "Learner",
    "Log",
    "LogWire",
    "MultiPaxos",
    "PaxosConfig",
    "PaxosMessage",
    "PaxosRecord",
    "RemoteLearner",
    "SnapshotDue",
    "Solo",
    "SoloRecord",
    "StateReceived",
    "StateWanted",
]
