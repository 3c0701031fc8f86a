"""amcast: atomic multicast. Order messages across groups of replicated processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazily

if TYPE_CHECKING:
    from .core.errors import QueryError, RetryableError, UsageError
    from .net.client.async_client import AsyncClient, BusyError, NotExecutedError, NotInTimeError, connect
    from .net.client.observer import GoneError, observe
    from .net.client.sync_client import SyncClient, connect_sync
    from .net.client.sync_observer import observe_sync
    from .net.node.application import ExchangingMachine, StateMachine

__all__ = [
    "AsyncClient",
    "BusyError",
    "ExchangingMachine",
    "GoneError",
    "NotExecutedError",
    "NotInTimeError",
    "QueryError",
    "RetryableError",
    "StateMachine",
    "SyncClient",
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
        "ExchangingMachine": "net.node.application",
        "GoneError": "net.client.observer",
        "NotExecutedError": "net.client.async_client",
        "NotInTimeError": "net.client.async_client",
        "QueryError": "core.errors",
        "RetryableError": "core.errors",
        "StateMachine": "net.node.application",
        "SyncClient": "net.client.sync_client",
        "UsageError": "core.errors",
        "connect": "net.client.async_client",
        "connect_sync": "net.client.sync_client",
        "observe": "net.client.observer",
        "observe_sync": "net.client.sync_observer",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
