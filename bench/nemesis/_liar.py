"""A member that lies while a file says so, for protocols that survive liars. The product has no such switch.

The process inside is the real one, and hears the truth. What it tells other processes goes through the simulator's
`LyingOutbox`; what it tells clients of results, and other members of old deliveries, is altered here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from amcast.core import AppMessage, MessageId, Outbox, Process, ProcessId, Record, TimerKey, Timestamp, Topology, Wire
from amcast.net.node._client_service import ClientService
from amcast.net.node._reader_service import ReaderService
from amcast.net.wire.control import Result
from amcast.protocols import PROTOCOLS
from amcast.sim.byzantine import LIES, Lying, LyingOutbox

_LOOK_S = 0.05  # between looks at the file


def lying_file(folder: Path, name: str) -> Path:
    """While it exists, this process lies, in the ways that it names."""
    return folder / "lying" / name


def draw_lying(rng: Random) -> Lying:
    """Twins are left out: two copies of a process would share one disk."""
    ways = [way for way in LIES if way != "twins"]
    chosen = tuple(rng.sample(ways, rng.randint(1, 4)))
    return Lying(chosen, rng.choice((0.05, 0.3, 1.0)), rng.getrandbits(32))


class Switch:
    """Whether it lies now, and how."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked_s = 0.0
        self._lying: Lying | None = None

    def lying(self) -> Lying | None:
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            try:
                self._lying = msgspec.json.decode(self._path.read_bytes(), type=Lying)
            except (FileNotFoundError, msgspec.DecodeError):  # it may be half written
                self._lying = None
        return self._lying


class HalfTruths(LyingOutbox):
    """Lies to others, and does everything else as it is told."""

    def deliver(self, position: int, message: AppMessage, final_ts: Timestamp | None) -> None:
        self._out.deliver(position, message, final_ts)

    def deliver_all(self, first: int, batch: Sequence[tuple[AppMessage, Timestamp]]) -> None:
        self._out.deliver_all(first, batch)

    def restored(self, position: int) -> None:
        self._out.restored(position)

    def readable(self, read: int, position: int) -> None:
        self._out.readable(read, position)

    def key_of(self, proof: bytes) -> bytes:
        return self._out.key_of(proof)

    def set_timer(self, key: TimerKey, after_us: int) -> None:
        self._out.set_timer(key, after_us)

    def cancel_timer(self, key: TimerKey) -> None:
        self._out.cancel_timer(key)


class SwitchedLiar(Process):
    def __init__(self, inner: Process, process: ProcessId, switch: Switch) -> None:
        self._inner = inner
        self._process = process
        self._switch = switch
        self._rng = Random(process)
        self._lying: Lying | None = None
        self._liar: HalfTruths | None = None

    def _out(self, out: Outbox) -> Outbox:
        lying = self._switch.lying()
        if lying != self._lying:
            self._lying = lying
            self._liar = None if lying is None else HalfTruths(self._process, lying, self._rng, lambda: (0, b""))
        if self._liar is None:
            return out
        self._liar.begin(0, out)
        return self._liar

    @property
    def is_leader(self) -> bool:
        return self._inner.is_leader

    @property
    def leader(self) -> ProcessId | None:
        return self._inner.leader

    @property
    def is_silent(self) -> bool:
        return self._inner.is_silent

    @property
    def delivered(self) -> int:
        return self._inner.delivered

    @property
    def freshness(self) -> tuple[int, ...] | None:
        return self._inner.freshness

    def recover(self, records: Sequence[Record]) -> None:
        self._inner.recover(records)

    def on_boot(self, out: Outbox) -> None:
        self._inner.on_boot(self._out(out))

    def on_multicast(self, message: AppMessage, out: Outbox) -> None:
        self._inner.on_multicast(message, self._out(out))

    def on_message(self, sender: ProcessId, message: Wire, out: Outbox) -> None:
        self._inner.on_message(sender, message, self._out(out))

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key.startswith("liar."):
            if self._liar is not None:
                self._liar.send_late(key, out)
        else:
            self._inner.on_timer(key, self._out(out))

    def on_read(self, read: int, out: Outbox) -> None:
        self._inner.on_read(read, self._out(out))


def make_liar(protocol: str, switch: Switch) -> None:
    """From now on this program's process of the protocol is a liar."""
    spec = PROTOCOLS[protocol]

    def build(process: ProcessId, topology: Topology, config: Any, rng: Random) -> Process:
        return SwitchedLiar(spec.build(process, topology, config, rng), process, switch)

    PROTOCOLS[protocol] = replace(spec, build=build)
    _lie_about_results(switch)
    _lie_about_deliveries(switch)


def _lie_about_results(switch: Switch) -> None:
    honest = ClientService.results

    def results(self: ClientService, ids: Sequence[MessageId], results: Sequence[Result]) -> bool:
        return honest(self, ids, results if switch.lying() is None else [b"a lie"] * len(ids))

    ClientService.results = results  # type: ignore[method-assign]


def _lie_about_deliveries(switch: Switch) -> None:
    """To a member that asks for what it missed: each message has another payload, of the same size."""
    honest = ReaderService._deliveries

    def deliveries(self: ReaderService, position: int) -> Any:
        answer = honest(self, position)
        if switch.lying() is None or not hasattr(answer, "messages"):
            return answer
        altered = [(msgspec.structs.replace(each, payload=each.payload[::-1]), ts) for each, ts in answer.messages]
        return msgspec.structs.replace(answer, messages=tuple(altered))

    ReaderService._deliveries = deliveries  # type: ignore[method-assign]
