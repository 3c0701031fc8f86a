"""GeoPaxos (Coelho 2019, chapter 4): state machine replication in which every site orders the objects that it owns."""

from .messages import Operation, decode_operation, object_number
from .policy import Move, PlacementPolicy, Use, register_policy
from .replica import GeoPaxos

__all__ = [
    "GeoPaxos",
    "Move",
    "Operation",
    "PlacementPolicy",
    "Use",
    "decode_operation",
    "object_number",
    "register_policy",
]
