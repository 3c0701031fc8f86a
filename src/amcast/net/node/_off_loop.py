"""Work that would keep the event loop busy, such as a large write and its sync, is done by another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

Result = TypeVar("Result")


async def off_loop(work: Callable[[], Result]) -> Result:
    """A caller that is cancelled still waits for the work to end: it must not go on while files are being closed."""
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with suppress(Exception):
            await future
        raise
