"""Clients that make load: closed loop (a number of messages outstanding) or open loop (a rate, whatever comes back)."""

from __future__ import annotations

from random import Random

import msgspec

from ..core import Outbox, ProcessId, TimerKey, Topology, UsageError, Wire
from ..protocols import Client, ClientConfig, ProtocolSpec, ReplicaConfig, Reply
from .base import Draft, Stream

_NEXT = "load.next"
_THINK = "load.think"


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client sends: `messages` in all, in an open loop if `interval_us` is set, else in a closed loop."""

    messages: int
    outstanding: int = 1
    interval_us: int = 0  # mean time between messages, exponentially distributed
    burst: int = 1  # messages at a time, in an open loop


class LoadClient(Client):
    def __init__(
        self,
        process: ProcessId,
        topology: Topology,
        spec: ProtocolSpec,
        config: ClientConfig,
        stream: Stream,
        load: Load,
        rng: Random,
        replica_config: ReplicaConfig | None = None,
    ) -> None:
        make_ingress = spec.ingress_maker(topology, replica_config or spec.config())
        super().__init__(process, topology, spec.ingress_groups, config, make_ingress, spec.survives_liars)
        self._stream = stream
        self._load = load
        self._spec = spec
        self._replica_config = replica_config or spec.config()
        self._rng = rng
        self._sent = 0
        self._is_open = bool(load.interval_us) or stream.due_us() is not None
        self._thinking = 0  # messages that wait for the end of a pause
        self._pauses = 0  # that were made: each has a timer of its own
        self._due_us = 0  # when the next messages of an open loop are due, since the boot

    @property
    def is_done(self) -> bool:
        return self._sent == self._load.messages and not self.outstanding

    @property
    def waits_to_send(self) -> bool:
        """There are messages left that it sends when it is time, even if nothing is answered."""
        return (self._is_open or self._thinking > 0) and self._sent < self._load.messages

    def on_boot(self, out: Outbox) -> None:
        if self._is_open:
            self._wait(out)
        else:
            self._think(self._load.outstanding, out)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            completed = self.on_reply(sender, message)
            if completed and not self._is_open:
                self._think(len(completed), out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _NEXT:
            self._send(self._load.burst, out)
            if self._sent < self._load.messages:
                self._wait(out)
        elif key.startswith(_THINK):
            self._thinking -= 1
            self._send(1, out)
        else:
            super().on_timer(key, out)

    def elapsed_us(self) -> int:
        """Since the boot. Where timers are exact, as in the simulator, messages leave when they are due."""
        return self._due_us

    def _wait(self, out: Outbox) -> None:
        """Until the next messages are due. What is late is made up for: a client that was held up sends at once what
        it should have sent meanwhile."""
        elapsed, due = self.elapsed_us(), self._stream.due_us()
        if due is None:
            due = self._due_us + int(self._rng.expovariate(1 / (self._load.interval_us * self._load.burst)))
        self._due_us = due
        out.set_timer(_NEXT, max(0, due - elapsed))

    def _think(self, count: int, out: Outbox) -> None:
        """Sends so many messages, each after the pause that its user makes."""
        pauses = [self._stream.pause_us() for _ in range(count)]
        at_once = pauses.count(0)
        self._send(at_once, out)
        for pause in filter(None, pauses):
            self._thinking += 1
            self._pauses += 1
            out.set_timer(f"{_THINK}.{self._pauses}", pause)

    def _send(self, count: int, out: Outbox) -> None:
        count = min(count, self._load.messages - self._sent)
        if count <= 0:
            return
        self._sent += count
        try:
            messages = self.new_messages(self._draw(count))
        except UsageError as error:  # on a real cluster ids can run out
            self.on_no_id(error)
        else:
            self.on_multicast_all(messages, out)

    def _draw(self, count: int) -> list[Draft]:
        draw_operation, operation_on = self._spec.draw_operation, self._spec.operation_on
        topology, config, rng, stream = self._topology, self._replica_config, self._rng, self._stream
        if draw_operation is None or operation_on is None:
            return stream.draw(count)
        touches = stream.draw_touches(count)
        if touches is not None:
            return [operation_on(each, topology, config) for each in touches]
        drawn = stream.draw(count)
        return [draw_operation(*each, stream.objects, stream.moves, topology, config, rng) for each in drawn]

    def on_no_id(self, error: UsageError) -> None:
        """No more can be sent."""
        raise error
