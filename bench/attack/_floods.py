"""More messages than a node can order: at leaders, at followers, and from clients that never settle."""

from __future__ import annotations

import asyncio

from ._tools import Field, Link

_CLIENTS = 8
_BURST = 64
_PAYLOAD = 16 << 10
_WAITING_MAX = 64 << 20  # bytes that the attacker itself holds for a node that does not read


async def flood_leaders(field: Field) -> None:
    """Messages to both groups at their leaders, as fast as they are read, without a look at the answers."""
    await _flood(field, [field.leader_of(group) for group in field.topology.groups], _PAYLOAD)


async def flood_followers(field: Field) -> None:
    """The same at processes that do not lead, which pass them on."""
    await _flood(field, field.followers, _PAYLOAD)


async def never_settle(field: Field) -> None:
    """Small messages that say, all of them, that no earlier one was answered: everything must be remembered."""
    await _flood(field, [field.leader_of(group) for group in field.topology.groups], 1)


async def _flood(field: Field, names: list[str], size: int) -> None:
    async def once() -> None:
        async with field.entered(field.rng.choice(names)) as link:
            field.note(link.client)
            reading = asyncio.ensure_future(link.until_closed())
            try:
                await _send_many(field, link, size)
            finally:
                reading.cancel()

    await field.together(_CLIENTS, once)


async def _send_many(field: Field, link: Link, size: int) -> None:
    groups = field.topology.groups
    destinations = [(group,) for group in groups] + [tuple(groups)]
    link.writer.transport.set_write_buffer_limits(high=_WAITING_MAX // _CLIENTS)
    while not field.is_over:
        payload = field.rng.randbytes(size)
        link.start(*(link.message(field.rng.choice(destinations), payload) for _ in range(_BURST)))
        field.done["messages"] += _BURST
        await link.flush()
        await asyncio.sleep(0)
