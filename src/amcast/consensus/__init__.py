"""Ordering inside a group: one replicated log a group."""

from .base import Decided, Decision, Elected, Log, LogWire, Proposed, SnapshotDue, StateReceived, StateWanted
from .bft import Bft, BftMessage, BftRecord
from .multipaxos import Learner, MultiPaxos, PaxosConfig, PaxosMessage, PaxosRecord, RemoteLearner
from .solo import Solo, SoloRecord

__all__ = [
    "Bft",
    "BftMessage",
    "BftRecord",
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
    "Proposed",
    "RemoteLearner",
    "SnapshotDue",
    "Solo",
    "SoloRecord",
    "StateReceived",
    "StateWanted",
]
