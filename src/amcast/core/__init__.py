"""What every protocol stands on: ids, messages, topology, the process interface, quorums and the pending set."""

from .batch import BATCH_LIMIT, StampedMessage, delivery_runs, pack, unpack, unpack_deliveries
from .codec import BadFrameError, Codec, encode
from .errors import UsageError
from .ids import (
    GroupId,
    MessageId,
    ProcessId,
    client_name,
    message_id,
    message_name,
    message_named,
    process_label,
    sender_of,
    seq_of,
)
from .latency import PRESETS, Latency, latency_preset
from .message import AppMessage, Record, Wire, app_message, digest, signed_part
from .pending import PendingSet
from .process import Outbox, Process, TimerKey
from .quorum import VoteCounter, liars_max, majority
from .seen import SeenMessages, SeenOfSender
from .timestamps import Timestamp, clock_of, timestamp
from .topology import Topology, grid

__all__ = [
    "BATCH_LIMIT",
    "PRESETS",
    "AppMessage",
    "BadFrameError",
    "Codec",
    "GroupId",
    "Latency",
    "MessageId",
    "Outbox",
    "PendingSet",
    "Process",
    "ProcessId",
    "Record",
    "SeenMessages",
    "SeenOfSender",
    "StampedMessage",
    "TimerKey",
    "Timestamp",
    "Topology",
    "UsageError",
    "VoteCounter",
    "Wire",
    "app_message",
    "client_name",
    "clock_of",
    "delivery_runs",
    "digest",
    "encode",
    "grid",
    "latency_preset",
    "liars_max",
    "majority",
    "message_id",
    "message_name",
    "message_named",
    "pack",
    "process_label",
    "sender_of",
    "seq_of",
    "signed_part",
    "timestamp",
    "unpack",
    "unpack_deliveries",
]
