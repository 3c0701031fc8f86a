"""Takes all of what a node has a limited number of: sessions, ids, places of observers."""

from __future__ import annotations

import asyncio

from amcast.net.wire.control import Attach

from ._tools import BROKEN, Field

_AT_ONCE = 8


async def sessions(field: Field) -> None:
    """One connection for each node that speaks for as many ids as it can get."""

    async def once() -> None:
        name = field.rng.choice(field.names)
        async with field.entered(name) as link:
            while not field.is_over:
                async with field.entered(name) as other:
                    link.say(Attach(other.client, other.ticket))
                    field.done["sessions"] += 1
                await link.flush()

    await field.together(_AT_ONCE, once)


async def held_sessions(field: Field) -> None:
    """A connection for each session, all of them kept."""
    await _hold(field, "client")


async def held_observers(field: Field) -> None:
    await _hold(field, "observer")


async def _hold(field: Field, kind: str) -> None:
    async def once() -> None:
        async with field.entered(field.rng.choice(field.names), kind):
            field.done[kind + "s"] += 1
            await asyncio.sleep(field.left_s)

    await field.together(min(2_000, field.order.connections), once)


async def ids(field: Field) -> None:
    """Takes an id, leaves, and takes another one."""

    async def once() -> None:
        try:
            async with field.entered(field.rng.choice(field.names)):
                field.done["ids"] += 1
        except BROKEN:
            await asyncio.sleep(0.01)

    await field.together(_AT_ONCE, once)
