"""Clients that lie: they say what a client can say, and mean it badly.

A liar gives one id to several messages, other contents and other destinations; it sends a message again, in another
batch than before or alone; it says that messages are settled that nobody has seen, or never settles any; it uses
sequence numbers that are far away, tells half of the groups, tells followers, claims times of the past and the future,
and sends whatever else the protocol has a wire message for.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, get_args, get_origin

import msgspec

from ..core import AppMessage, GroupId, Outbox, Process, ProcessId, TimerKey, Topology, Wire, pack, signed_part, unpack
from ..core.ids import SEQ_LIMIT, UNSETTLED_MAX, message_id
from ..protocols import ProtocolSpec, Start

_NEXT = "liar.next"
_INTERESTING = (0, 1, 2, -1, 5, 1_000, 1 << 20, 1 << 31, 1 << 47, 1 << 60, -(1 << 62), (1 << 63) - 1)


class LyingClient(Process):
    """Multicasts about every `interval_us`, until it has done so `lies` times. It hears nothing."""

    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        spec: ProtocolSpec,
        interval_us: int,
        lies: int,
        batch: int,
        rng: Random,
    ) -> None:
        self._process = process
        self._topology = topology
        self._spec = spec
        self._interval_us = interval_us
        self._left = lies
        self._batch = batch
        self._rng = rng
        self._seq = 0
        self._told: list[AppMessage] = []
        # Groups that wait for a batch which another one refuses would be helped by the next settled mark.
        self._settles = batch == 1 or rng.random() < 0.5

    def on_boot(self, out: Outbox) -> None:
        self._wait(out)

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        """Nobody asks a liar to send anything."""

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        """It does not listen."""

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        self._left -= 1
        tell = self._rng.choice((self._tell, self._tell, self._tell_two, self._tell_anything))
        tell(out)
        if self._left > 0:
            self._wait(out)

    def _wait(self, out: Outbox) -> None:
        out.set_timer(_NEXT, int(self._rng.expovariate(1 / self._interval_us)))

    # -- messages

    def _tell(self, out: Outbox) -> None:
        """One message, to some of those who should hear it."""
        message = self._message()
        self._send(message, self._hearers(message), out)

    def _tell_two(self, out: Outbox) -> None:
        """Two messages with one id, or with one message in common, each to some processes."""
        one = self._message()
        overlaps = self._batch > 1 and self._rng.random() < 0.5
        other = self._overlapping(one) if overlaps else self._other(one)
        for message in (one, other):
            self._send(message, self._hearers(message), out)

    def _message(self) -> AppMessage:
        rng = self._rng
        if self._told and rng.random() < 0.3:
            if self._batch > 1 and rng.random() < 0.5:
                return self._overlapping(rng.choice(self._told[-3:]))  # what is older is settled, most probably
            again = rng.choice(self._told)
            return again if rng.random() < 0.3 else self._other(again)
        seq = self._seq
        is_next = rng.random() < 0.8
        if not is_next:
            seq = rng.choice((seq + rng.randrange(20), max(0, seq - rng.randrange(5)), SEQ_LIMIT - 1, UNSETTLED_MAX))
        dst = self._dst()
        if is_next:
            if not self._spec.numbers_by_entry or rng.random() < 0.9:  # otherwise no group takes it, most probably
                seq = self._spec.next_number(seq, dst, self._topology)
            self._seq = seq + 1
        made = AppMessage(message_id(self._process, seq), dst, self._payload(), self._settled(seq))
        if self._batch > 1 and rng.random() < 0.3:
            parts = [msgspec.structs.replace(made, id=made.id + at) for at in range(rng.randint(2, 3))]
            made = pack(parts)
        self._told.append(made)
        return made

    def _overlapping(self, message: AppMessage) -> AppMessage:
        """One of the messages in a batch that was told, alone or in a batch with another one."""
        rng = self._rng
        part = rng.choice(unpack(message))
        if rng.random() < 0.5:
            return part
        step = rng.choice((1, 2, -1 if part.seq else 1))
        other = msgspec.structs.replace(part, id=part.id + step, payload=self._payload())
        return pack(sorted((part, other), key=lambda each: each.id))

    def _other(self, message: AppMessage) -> AppMessage:
        dst = message.dst if self._rng.random() < 0.3 else self._dst()
        return AppMessage(message.id, dst, self._payload(), self._settled(message.seq))

    def _dst(self) -> tuple[GroupId, ...]:
        groups = self._topology.groups
        if self._spec.orders_operations and self._rng.random() < 0.8:
            return groups  # every other operation is refused
        return tuple(sorted(self._rng.sample(groups, self._rng.randint(1, min(3, len(groups))))))

    def _payload(self) -> bytes:
        draw, rng, topology = self._spec.draw_operation, self._rng, self._topology
        if draw is None or rng.random() < 0.2:
            return rng.randbytes(4)
        some = tuple(sorted(rng.sample(topology.groups, rng.randint(1, min(3, len(topology.groups))))))
        return draw(some, b"", 2, 0.2, topology, self._spec.config(), rng)[1]

    def _settled(self, seq: int) -> int:
        rng = self._rng
        if not self._settles:
            return 0
        return rng.choice((0, 0, seq, seq, rng.randrange(seq + 1), seq + 1_000, -5))

    def _hearers(self, message: AppMessage) -> list[ProcessId]:
        """All of the groups that should hear it, or half; all members or one of each."""
        rng = self._rng
        groups = [*dict.fromkeys((*self._spec.ingress_groups(message, self._topology), *message.dst))]
        if rng.random() < 0.5:
            groups = rng.sample(groups, (len(groups) + 1) // 2)
        members = [self._topology.members(group) for group in groups]
        if rng.random() < 0.7:
            return [process for each in members for process in each]
        return [rng.choice(each) for each in members]

    def _send(self, message: AppMessage, to: Sequence[ProcessId], out: Outbox) -> None:
        out.announce_all(unpack(message))
        message = self._signed(message, out)
        for kind in self._spec.client_messages:
            out.send_all(to, Start((message,)) if kind is Start else self._wire(kind, message))

    def _signed(self, message: AppMessage, out: Outbox) -> AppMessage:
        """Its own signature, which it has; sometimes for something else."""
        if not self._spec.survives_liars:
            return message
        said = message if self._rng.random() < 0.9 else self._other(message)
        return msgspec.structs.replace(message, proof=out.sign(signed_part(said)))

    # -- anything else

    def _tell_anything(self, out: Outbox) -> None:
        """Any wire message of the protocol: one that clients send, with any fields, or one that only groups send."""
        rng, message = self._rng, self._message()
        out.announce_all(unpack(message))
        message = self._signed(message, out)
        kinds: tuple[type[Wire], ...] = (*self._spec.client_messages, Start)
        of_groups = [each for each in self._spec.samples if not isinstance(each, kinds)]
        wire = rng.choice(of_groups) if of_groups and rng.random() < 0.3 else self._wire(rng.choice(kinds), message)
        out.send_all(rng.sample(self._topology.processes, rng.randint(1, len(self._topology.processes))), wire)

    def _wire(self, kind: type[Wire], message: AppMessage) -> Wire:
        """A wire message about this one. Half of its fields are as they should be."""
        drawn = [self._field(field.name, field.type, message) for field in msgspec.structs.fields(kind)]
        return kind(*drawn)

    def _field(self, name: str, type_: Any, message: AppMessage) -> Any:
        rng = self._rng
        if type_ is AppMessage:
            return message
        if name == "messages":
            return (message,)
        if name == "id":
            return message.id
        if name in ("source", "group") and rng.random() < 0.7:
            return self._spec.ingress_groups(message, self._topology)[0]
        if type_ is bool:
            return rng.random() < 0.5
        if type_ is int:
            return rng.choice((*_INTERESTING, rng.randrange(1_000_000), rng.randrange(1_000_000)))
        if get_origin(type_) is tuple:
            one = get_args(type_)[0]
            return tuple([self._field("", one, message) for _ in range(rng.randrange(3))])
        return rng.choice(self._topology.groups)
