"""Atomic multicast: order messages across groups of replicated processes.

For programs that use a running cluster:

    connect         a client with an event loop: multicast, call, follow
    connect_sync    the same for programs without an event loop
    observe         follows what groups deliver, and sends nothing

    AsyncClient     what connect returns
    SyncClient      what connect_sync returns
    Observer        what observe returns
    Delivery        one message at its place in the order of a group

For applications that live inside the nodes:

    StateMachine    the class to derive from: apply, snapshot, restore

What they raise:

    RetryableError  the cluster could not do it in time: ask again later
    BusyError       one of these: it had too many open messages
    NotInTimeError  one of these: not every group has answered in time
    GoneError       nobody keeps deliveries that far back any more
    UsageError      wrong input of any kind; its text says what to do

And in packages of their own: amcast.sim simulates protocols under faults, amcast.check judges what they delivered,
amcast.trace reads and writes runs, amcast.protocols and amcast.core are for those who write a protocol.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import RetryableError, UsageError
    from .net.client.async_client import AsyncClient, BusyError, NotInTimeError, connect
    from .net.client.observer import Delivery, GoneError, Observer, observe
    from .net.client.sync_client import SyncClient, connect_sync
    from .net.node.application import StateMachine

__all__ = [
    "AsyncClient",
    "BusyError",
    "Delivery",
    "GoneError",
    "NotInTimeError",
    "Observer",
    "RetryableError",
    "StateMachine",
    "SyncClient",
    "UsageError",
    "__version__",
    "connect",
    "connect_sync",
    "observe",
]

__version__ = "0.1.0"


_WHERE = {
    "AsyncClient": "net.client.async_client",
    "BusyError": "net.client.async_client",
    "Delivery": "net.client.observer",
    "GoneError": "net.client.observer",
    "NotInTimeError": "net.client.async_client",
    "Observer": "net.client.observer",
    "RetryableError": "core.errors",
    "StateMachine": "net.node.application",
    "SyncClient": "net.client.sync_client",
    "UsageError": "core.errors",
    "connect": "net.client.async_client",
    "connect_sync": "net.client.sync_client",
    "observe": "net.client.observer",
}


def __getattr__(name: str) -> Any:
    """A program that only simulates or checks does not load the network's libraries."""
    if name not in _WHERE:
        raise AttributeError(f"module 'amcast' has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
