"""Clients that ask and do not read the answers."""

from __future__ import annotations

import asyncio

from amcast.net.wire.control import Follow, StatusQuery

from ._tools import Field

_FOLLOWERS = 64
_ASKING = 32
_QUESTIONS = 1_000


async def mute_followers(field: Field) -> None:
    """Follow a group from its first position on, and read nothing."""

    async def once() -> None:
        name = field.rng.choice(field.names)
        async with field.entered(name, field.rng.choice(["client", "observer"])) as link:
            link.stop_reading()
            link.say(Follow(int(name[1 : name.index(".")]), 0))
            field.done["followers"] += 1
            await link.flush()
            await asyncio.sleep(field.left_s)

    await field.together(_FOLLOWERS, once)


async def mute_askers(field: Field) -> None:
    """Ask for the status all the time, and read nothing."""

    async def once() -> None:
        async with field.entered(field.rng.choice(field.names), "observer") as link:
            link.stop_reading()
            while not field.is_over:
                for _ in range(_QUESTIONS):
                    link.say(StatusQuery())
                field.done["questions"] += _QUESTIONS
                await link.flush()
                await asyncio.sleep(0.01)

    await field.together(_ASKING, once)


async def mute_senders(field: Field) -> None:
    """Multicast, and read no replies."""

    async def once() -> None:
        group = field.rng.choice(list(field.topology.groups))
        async with field.entered(field.leader_of(group)) as link:
            field.note(link.client)
            link.stop_reading()
            while not field.is_over:
                link.start(*(link.message((group,)) for _ in range(100)))
                field.done["messages"] += 100
                await link.flush()
                await asyncio.sleep(0.01)

    await field.together(_ASKING, once)
