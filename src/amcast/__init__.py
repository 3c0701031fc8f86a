"""amcast: atomic multicast. Order messages across groups of replicated processes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import QueryError, RetryableError, UsageError
    from .net.client.async_client import AsyncClient, BusyError, NotInTimeError, connect
    from .net.client.observer import GoneError, observe
    from .net.client.sync_client import connect_sync
    from .net.node.application import StateMachine

__all__ = [
    "AsyncClient",
    "BusyError",
    "GoneError",
    "NotInTimeError",
    "QueryError",
    "RetryableError",
    "StateMachine",
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
    "GoneError": "net.client.observer",
    "NotInTimeError": "net.client.async_client",
    "QueryError": "core.errors",
    "RetryableError": "core.errors",
    "StateMachine": "net.node.application",
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
