"""amcast: atomic multicast. Order messages across groups of replicated processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazily

if TYPE_CHECKING:
    from .core.errors import RetryableError, UsageError
    from .net.client.async_client import AsyncClient, BusyError, NotInTimeError, connect
    from .net.client.observer import GoneError, observe
    from .net.client.sync_client import connect_sync
    from .net.node.application import StateMachine

__all__ = [
    "AsyncClient",
    "BusyError",
    "GoneError",
    "NotInTimeError",
    "RetryableError",
    "StateMachine",
    "UsageError",
    "__version__",
    "connect",
    "connect_sync",
    "observe",
]

__version__ = "0.1.0"

# A program that only simulates or checks does not load the network's libraries.
__getattr__ = lazily(
    __name__,
    {
        "AsyncClient": "net.client.async_client",
        "BusyError": "net.client.async_client",
        "GoneError": "net.client.observer",
        "NotInTimeError": "net.client.async_client",
        "RetryableError": "core.errors",
        "StateMachine": "net.node.application",
        "UsageError": "core.errors",
        "connect": "net.client.async_client",
        "connect_sync": "net.client.sync_client",
        "observe": "net.client.observer",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
