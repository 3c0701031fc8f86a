"""Ordering between groups: the multicast protocols, behind one interface."""

from ._automaton import GroupAutomaton, GroupOutbox
from ._client import Client, ClientConfig, Ingress, IngressGroups, start_all
from ._messages import IngressMessage, Reply, Start
from ._replica import ReplicaConfig
from .registry import PROTOCOLS, ProtocolSpec, markdown_table, protocol

__all__ = [
    "PROTOCOLS",
    "Client",
    "ClientConfig",
    "GroupAutomaton",
    "GroupOutbox",
    "Ingress",
    "IngressGroups",
    "IngressMessage",
    "ProtocolSpec",
    "ReplicaConfig",
    "Reply",
    "Start",
    "markdown_table",
    "protocol",
    "start_all",
]
