"""Clients that lie: about ids, about what is settled, about times and sources, and about where a message goes.

A liar is connected to every process under one id. It makes what a correct client would send in this protocol, and then
sends something else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import msgspec

from amcast.core import AppMessage, ProcessId, Wire, encode, pack
from amcast.core.ids import CLIENT_ID_LIMIT, SEQ_BITS, SEQ_LIMIT, SEQ_MASK
from amcast.net.wire.control import Attach, Detach
from amcast.protocols import Start
from amcast.protocols.geopaxos import Operation

from ._tools import Field, Link

_LIARS = 4
_STAY_S = 0.3
_NUMBERS = (0, -1, 1, 1 << 47, 1 << 60, -(1 << 62), (1 << 63) - 1, -(1 << 63))

Sent = list[tuple[ProcessId, Wire]]


class _Captured:
    """Stands for a client's outbox."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self.sent: Sent = []

    def send(self, to: ProcessId, message: Wire) -> None:
        self.sent.append((to, message))

    def send_all(self, tos: Sequence[ProcessId], message: Wire) -> None:
        self.sent += [(to, message) for to in tos]


class Liar:
    def __init__(self, field: Field, links: dict[ProcessId, Link]) -> None:
        self._field = field
        self._links = links
        self.id = next(iter(links.values())).client
        config = field.config.replica_config()
        self._spec = field.config.spec().configured(config)
        make = self._spec.ingress_maker(field.topology, config)
        self._ingress: Any = None if make is None else make(self.id)

    def message(self, seq: int, dst: tuple[int, ...], payload: bytes = b"lie", settled: int = 0) -> AppMessage:
        if self._spec.orders_operations:
            payload, dst = encode(Operation((f"x{seq % 4}",), payload)), self._field.topology.groups
        return AppMessage(self.id << SEQ_BITS | seq, dst, payload, settled)

    def ordinary(self, message: AppMessage) -> Sent:
        """What a correct client sends to multicast it."""
        topology, config = self._field.topology, self._field.config
        if self._ingress is not None:
            out = _Captured(time.time_ns() // 1_000 - config.epoch_s * 1_000_000)
            self._ingress.send(message, out)
            return out.sent
        ids = config.ids()
        leaders = [ids[self._field.leader_of(group)] for group in self._spec.ingress_groups(message, topology)]
        return [(leader, Start((message,))) for leader in leaders]

    def send(self, sent: Sent) -> None:
        for to, wire in sent:
            self._links[to].write(encode(wire))
            self._field.done["lies"] += 1

    def send_in(self, group: int, sent: Sent) -> None:
        """Only to the members of one group."""
        self.send([each for each in sent if each[0] in self._field.topology.members(group)])

    def say(self, request: msgspec.Struct) -> None:
        for link in self._links.values():
            link.say(request)
            self._field.done["lies"] += 1

    async def flush(self) -> None:
        for link in self._links.values():
            await link.flush()


@asynccontextmanager
async def _liar(field: Field) -> AsyncIterator[Liar]:
    ids = field.config.ids()
    async with AsyncExitStack() as stack:
        links: dict[ProcessId, Link] = {}
        client, ticket = 0, b""
        for name in field.names:
            link = await stack.enter_async_context(field.encrypted(name))
            await link.hello(field, "client", client, ticket)
            client, ticket = link.client, link.ticket
            links[ids[name]] = link
        field.note(client)
        yield Liar(field, links)


async def _lie(field: Field, tell: Callable[[Field, Liar], None]) -> None:
    async def once() -> None:
        async with _liar(field) as liar:
            tell(field, liar)
            await liar.flush()
            await asyncio.sleep(_STAY_S)  # a client that is gone need not be answered

    await field.together(_LIARS, once)


# -- what they lie about


async def lies_about_settled(field: Field) -> None:
    """A later message says that all earlier ones were answered; then an earlier one is sent, to one group alone."""

    def tell(field: Field, liar: Liar) -> None:
        first, second = field.rng.sample(list(field.topology.groups), 2)
        both = (first, second) if first < second else (second, first)
        at = field.rng.randint(1, 20)
        liar.send(liar.ordinary(liar.message(at, (second,), settled=at)))
        liar.send_in(first, liar.ordinary(liar.message(field.rng.randrange(at), both)))
        liar.send(liar.ordinary(liar.message(at + 1, both, settled=field.rng.choice(_NUMBERS))))

    await _lie(field, tell)


async def lies_about_ids(field: Field) -> None:
    """Ids of processes and of other clients, forged tickets, and goodbyes for others."""

    def tell(field: Field, liar: Liar) -> None:
        other = field.rng.choice([0, 1, liar.id - 1, liar.id + 1, field.rng.randrange(CLIENT_ID_LIMIT)])
        message = AppMessage(other << SEQ_BITS, tuple(field.topology.groups), b"forged")
        match field.rng.randrange(4):
            case 0:
                liar.send(liar.ordinary(message))
            case 1:
                liar.say(Attach(other, field.rng.randbytes(32)))
            case 2:
                liar.say(Detach(other, SEQ_LIMIT))
            case _:
                last = SEQ_LIMIT - 1
                liar.send(liar.ordinary(liar.message(last, tuple(field.topology.groups), settled=last)))

    await _lie(field, tell)


async def lies_about_contents(field: Field) -> None:
    """One id for two messages: other payloads at each group, or other destinations."""

    def tell(field: Field, liar: Liar) -> None:
        groups = tuple(field.topology.groups)
        for seq in range(5):
            for group in groups:
                dst = field.rng.choice([groups, (group,)])
                liar.send_in(group, liar.ordinary(liar.message(seq, dst, field.rng.randbytes(8), settled=seq)))

    await _lie(field, tell)


async def lies_about_batches(field: Field) -> None:
    """Batches that overlap: a message comes in one of them, in another one, and alone."""

    def tell(field: Field, liar: Liar) -> None:
        groups = tuple(field.topology.groups)
        dst = field.rng.choice([groups, groups[:1]])
        parts = [liar.message(seq, dst) for seq in range(4)]
        for first, end in field.rng.sample([(0, 3), (1, 2), (1, 3), (2, 4)], 4):
            liar.send(liar.ordinary(pack(parts[first:end])))

    await _lie(field, tell)


async def lies_by_omission(field: Field) -> None:
    """A message to all groups, of which one group alone hears."""

    def tell(field: Field, liar: Liar) -> None:
        groups = tuple(field.topology.groups)
        for seq in range(5):
            liar.send_in(field.rng.choice(groups), liar.ordinary(liar.message(seq, groups)))

    await _lie(field, tell)


async def lies_about_numbers(field: Field) -> None:
    """Any number in what a correct client sends is another one: times, sources, counts, sequence numbers."""

    def tell(field: Field, liar: Liar) -> None:
        for seq in range(5):
            sent = liar.ordinary(liar.message(seq, tuple(field.topology.groups)))
            liar.send([(to, _lied(wire, field.rng)) for to, wire in sent])

    await _lie(field, tell)


def _lied(wire: Any, rng: Random) -> Any:
    """The same with one number changed. Ids keep their sender, or the lie would be refused before it is heard."""
    names = [name for name in wire.__struct_fields__ if isinstance(getattr(wire, name), int | tuple | AppMessage)]
    name = rng.choice(names)
    value = getattr(wire, name)
    if isinstance(value, AppMessage):
        changed: Any = _lied(value, rng)
    elif isinstance(value, tuple):
        changed = tuple([_lied(each, rng) if isinstance(each, AppMessage) else rng.choice(_NUMBERS) for each in value])
    elif name == "id":
        changed = value & ~SEQ_MASK | rng.choice([0, 1, SEQ_LIMIT // 2, SEQ_LIMIT - 1])
    elif isinstance(value, bool):
        changed = not value
    else:
        changed = rng.choice(_NUMBERS)
    return msgspec.structs.replace(wire, **{name: changed})
