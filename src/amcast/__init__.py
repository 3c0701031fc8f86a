"""Atomic multicast: order messages across groups of replicated processes.

For programs that use a running cluster:

    connect         a client with an event loop: multicast, call, query, follow
    connect_sync    the same for programs without an event loop
    observe         follows what groups deliver, and sends nothing
    observe_sync    the same for programs without an event loop

    AsyncClient     what connect returns
    SyncClient      what connect_sync returns
    Observer        what observe returns
    SyncObserver    what observe_sync returns
    Delivery        one message at its place in the order of a group

For applications that live inside the nodes:

    StateMachine        the class to derive from: apply, query, snapshot, restore
    ExchangingMachine   for messages that groups execute together, each with what the others read: read, apply

What they raise:

    RetryableError  the cluster could not do it in time: ask again later
    BusyError       one of these: it had too many open messages
    NotInTimeError  one of these: not every group has answered in time
    NotExecutedError  the message is delivered, and was not executed: it was skipped, or its key used before
    QueryError      what an application raised for a query
    GoneError       nobody keeps deliveries that far back any more
    UsageError      wrong input of any kind; its text says what to do

And in packages of their own: amcast.sim simulates protocols under faults, amcast.check judges what they delivered,
amcast.trace reads and writes runs, amcast.protocols and amcast.core are for those who write a protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazily

if TYPE_CHECKING:
    from .core.errors import QueryError, RetryableError, UsageError
    from .net.client.async_client import AsyncClient, BusyError, NotExecutedError, NotInTimeError, connect
    from .net.client.observer import Delivery, GoneError, Observer, observe
    from .net.client.sync_client import SyncClient, connect_sync
    from .net.client.sync_observer import SyncObserver, observe_sync
    from .net.node.application import ExchangingMachine, StateMachine

__all__ = [
    "AsyncClient",
    "BusyError",
    "Delivery",
    "ExchangingMachine",
    "GoneError",
    "NotExecutedError",
    "NotInTimeError",
    "Observer",
    "QueryError",
    "RetryableError",
    "StateMachine",
    "SyncClient",
    "SyncObserver",
    "UsageError",
    "__version__",
    "connect",
    "connect_sync",
    "observe",
    "observe_sync",
]

__version__ = "0.1.0"

# A program that only simulates or checks does not load the network's libraries.
__getattr__ = lazily(
    __name__,
    {
        "AsyncClient": "net.client.async_client",
        "BusyError": "net.client.async_client",
        "Delivery": "net.client.observer",
        "ExchangingMachine": "net.node.application",
        "GoneError": "net.client.observer",
        "NotExecutedError": "net.client.async_client",
        "NotInTimeError": "net.client.async_client",
        "Observer": "net.client.observer",
        "QueryError": "core.errors",
        "RetryableError": "core.errors",
        "StateMachine": "net.node.application",
        "SyncClient": "net.client.sync_client",
        "SyncObserver": "net.client.sync_observer",
        "UsageError": "core.errors",
        "connect": "net.client.async_client",
        "connect_sync": "net.client.sync_client",
        "observe": "net.client.observer",
        "observe_sync": "net.client.sync_observer",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
