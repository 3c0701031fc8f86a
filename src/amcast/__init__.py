"""amcast: atomic multicast. Order messages across groups of replicated processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .net.client.async_client import connect
    from .net.client.observer import observe
    from .net.client.sync_client import connect_sync

__all__ = ["__version__", "connect", "connect_sync", "observe"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """A program that only simulates or checks does not load the network's libraries."""
    if name == "connect":
        from .net.client.async_client import connect

        return connect
    if name == "observe":
        from .net.client.observer import observe

        return observe
    if name == "connect_sync":
        from .net.client.sync_client import connect_sync

        return connect_sync
    raise AttributeError(f"module 'amcast' has no attribute {name!r}")
