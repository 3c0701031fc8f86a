"""Ordering between groups: the multicast protocols, behind one interface.

What a protocol in a package of its own needs is all here (see docs/protocols.md, and `examples/` for one).
"""

from ._adapter import Frame, StreamAck, Submit, replicate
from ._automaton import GroupAutomaton, GroupOutbox
from ._client import Client, ClientConfig, Ingress, IngressGroups, destinations, start_all
from ._messages import (
    ClientMessage,
    IngressMessage,
    Reply,
    Start,
    problem_with_destinations,
    problem_with_number,
)
from ._replica import DeliveriesState, Replica, ReplicaConfig, make_log
from ._spec import ORDER, SAMPLE, ProtocolSpec
from .registry import MULTICAST_PROTOCOLS, PROTOCOLS, installed, markdown_table, protocol, select

__all__ = [
    "MULTICAST_PROTOCOLS",
    "ORDER",
    "PROTOCOLS",
    "SAMPLE",
    "Client",
    "ClientConfig",
    "ClientMessage",
    "DeliveriesState",
    "Frame",
    "GroupAutomaton",
    "GroupOutbox",
    "Ingress",
    "IngressGroups",
    "IngressMessage",
    "ProtocolSpec",
    "Replica",
    "ReplicaConfig",
    "Reply",
    "Start",
    "StreamAck",
    "Submit",
    "destinations",
    "installed",
    "make_log",
    "markdown_table",
    "problem_with_destinations",
    "problem_with_number",
    "protocol",
    "replicate",
    "select",
    "start_all",
]
