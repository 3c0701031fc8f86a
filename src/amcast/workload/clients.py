"""Clients that make load: closed loop (a number of messages outstanding) or open loop (a rate, whatever comes back)."""

from __future__ import annotations

from random import Random

import msgspec

from ..core import GroupId, Outbox, ProcessId, TimerKey, Topology, UsageError, Wire
from ..protocols import Client, ClientConfig, ProtocolSpec, ReplicaConfig, Reply
from .micro import Micro

_NEXT = "load.next"


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
        workload: Micro,
        load: Load,
        rng: Random,
        replica_config: ReplicaConfig | None = None,
    ) -> None:
        make_ingress = spec.ingress_maker(topology, replica_config or spec.config())
        super().__init__(
            process,
            topology,
            spec.ingress_groups,
            config,
            make_ingress,
            fears_liars=spec.survives_liars,
            numbers_by_entry=spec.numbers_by_entry,
        )
        self._workload = workload
        self._load = load
        self._spec = spec
        self._replica_config = replica_config or spec.config()
        self._rng = rng
        self._sent = 0

    @property
    def is_done(self) -> bool:
        return self._sent == self._load.messages and not self.outstanding

    @property
    def waits_to_send(self) -> bool:
        """An open loop has messages left: it sends them when it is time, even if nothing is answered."""
        return bool(self._load.interval_us) and self._sent < self._load.messages

    def on_boot(self, out: Outbox) -> None:
        if self._load.interval_us:
            self._wait(out)
        else:
            self._send(self._load.outstanding, out)

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        if isinstance(message, Reply):
            completed = self.on_reply(sender, message)
            if completed and not self._load.interval_us:
                self._send(len(completed), out)

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key != _NEXT:
            super().on_timer(key, out)
            return
        self._send(self._load.burst, out)
        if self._sent < self._load.messages:
            self._wait(out)

    def _wait(self, out: Outbox) -> None:
        out.set_timer(_NEXT, int(self._rng.expovariate(1 / (self._load.interval_us * self._load.burst))))

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

    def _draw(self, count: int) -> list[tuple[tuple[GroupId, ...], bytes]]:
        drawn = self._workload.draw(self._topology, self._rng, count)
        make = self._spec.draw_operation
        if make is None:
            return drawn
        topology, config, rng = self._topology, self._replica_config, self._rng
        objects, moves = self._workload.objects, self._workload.moves
        return [make(dst, payload, objects, moves, topology, config, rng) for dst, payload in drawn]

    def on_no_id(self, error: UsageError) -> None:
        """No more can be sent."""
        raise error
