"""Multi-Paxos: the log of a group of 2f+1 processes that may crash."""

from .config import PaxosConfig
from .learner import Learner
from .log import MultiPaxos
from .messages import PaxosMessage, PaxosRecord
from .remote import RemoteLearner

__all__ = ["Learner", "MultiPaxos", "PaxosConfig", "PaxosMessage", "PaxosRecord", "RemoteLearner"]
