"""Optimistic Atomic Multicast: the baseline, with optimistic delivery after one message delay.

Guarantees for final deliveries: those of the baseline. An optimistic delivery comes at most once and never after the
final one, in the order of the senders' timestamps unless a message arrives later than expected. 1 delay optimistic,
3 final, 4 final when the timestamp changed.

    sender     source group g            destination h           another sender x to h
      |--FR-MCAST-->|------------------------->|                          |      1   after the wait window: h delivers
      |--BARRIER-REQUEST----------------------------------------------->|      1   optimistically, g and x propose
      |             |--2a--------------------->|<----------------------2a-|      2
      |             |--2b--------------------->|<----------------------2b-|      3   deliver

A process waits until its clock has passed the message's timestamp by its wait window, which it estimates from the last
100 messages of each sender: by then every earlier message has arrived, most probably. It proposes after the same wait,
so that its group's log rarely changes a timestamp.

From: Bezerra, Pedone, Garbinato, Geyer, "Optimistic Atomic Multicast" (2013), sections IV and VI.

Where this departs from the paper, besides what is said of the baseline:
- **Barriers wait out the window as well**: proposed at once, they would raise the timestamps of messages that are still
  on their way.
- The initial copy is a message of its own kind: it never passes for the final one, which comes through the log.
- Copies that were sent again tell nothing about delays, and do not count for the window. Nor do those of a sender whose
  clock is more than a second behind: everyone's messages would wait as long.
"""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

from ...core import GroupId, MessageId, Outbox, ProcessId, TimerKey, Topology
from .._in_flight import InFlight
from .baseline import Baseline, BaselineConfig
from .ingress import OptimisticIngress
from .messages import SKEW_MAX_US, BarrierRequest, FrMcast, Time
from .source import barrier_time
from .window import WaitWindow

_WINDOW = "oam.window"


class OptimisticConfig(BaselineConfig, frozen=True, forbid_unknown_fields=True):
    extra_window_us: int = 0  # waited on top of the estimate


class Optimistic(Baseline):
    def __init__(self, process: ProcessId, topology: Topology, config: OptimisticConfig, rng: Random) -> None:
        super().__init__(process, topology, config, rng)
        self._extra_window_us = config.extra_window_us
        self._window = WaitWindow()
        # By timestamp: what waits out the window. Ties are broken as final timestamps break them.
        self._waiting: list[tuple[Time, GroupId, MessageId, int, FrMcast | BarrierRequest]] = []
        self._waited = 0
        self._opt_position = 0
        self._seen_max = 1_000
        self._seen: InFlight[FrMcast] = InFlight()  # initial copies of messages that are not delivered yet

    def on_timer(self, key: TimerKey, out: Outbox) -> None:
        if key == _WINDOW:
            self._release(out)
            self._flush(out)
            self._send_replies(out)
        else:
            super().on_timer(key, out)

    def _on_fr_mcast(self, sender: ProcessId, copy: FrMcast, out: Outbox) -> None:
        super()._on_fr_mcast(sender, copy, out)
        took_us = out.now_us - copy.time
        if not copy.again and took_us <= SKEW_MAX_US:
            self._window.add(sender, took_us)
        if self._is_done(copy) or copy.message.id in self._seen:
            return
        if self._seen.add(copy.message, copy):
            self._wait(copy.time, copy.source, copy.message.id, copy, out)

    def _new_ingress(self) -> OptimisticIngress:
        return OptimisticIngress(self._process, self._topology, self._config)

    def _enqueue(self, copy: FrMcast, out: Outbox) -> None:
        """A message is proposed when its window is over, with its optimistic delivery."""

    def _on_barrier_request(self, request: BarrierRequest, out: Outbox) -> None:
        self._wait(request.time, request.group, request.id, request, out)

    def _is_done(self, copy: FrMcast) -> bool:
        """Its source group's log has it, and this process has delivered it if it is one of the destinations."""
        source = self._merger.sources.get(copy.source)
        return source is not None and source.is_known(copy.message.id) and copy.message.id not in self._merger

    def _flush(self, out: Outbox) -> None:
        super()._flush(out)
        if len(self._seen) > self._seen_max:
            self._forget_done()

    def _forget_done(self) -> None:
        """Now and then, not at once: copies that arrive late must still be recognised. What is kept stays bounded by
        twice the number of messages that are under way."""
        self._seen.drop(lambda _, copy: self._is_done(copy))
        self._seen_max = 2 * len(self._seen) + 1_000

    # -- the window

    def _wait(self, time: Time, group: GroupId, id_: MessageId, what: FrMcast | BarrierRequest, out: Outbox) -> None:
        self._waited += 1
        heappush(self._waiting, (time, group, id_, self._waited, what))
        self._release(out)

    def _release(self, out: Outbox) -> None:
        window_us = self._window.length_us + self._extra_window_us
        now = out.now_us
        while self._waiting and self._waiting[0][0] + window_us <= now:
            what = heappop(self._waiting)[4]
            if isinstance(what, FrMcast):
                self._release_copy(what, out)
            else:
                self._proposals.propose_barrier(barrier_time(self._group, what.time, what.group), out)
        if self._waiting:
            out.set_timer(_WINDOW, self._waiting[0][0] + window_us - now)

    def _release_copy(self, copy: FrMcast, out: Outbox) -> None:
        message = copy.message
        if self._group in message.dst and not self._is_done(copy):
            self._opt_deliver(copy, out)
        if copy.source == self._group:
            self._proposals.make_ready(copy, out)
        elif self._group in copy.asked:
            self._proposals.propose_barrier(barrier_time(self._group, copy.time, copy.source), out)

    def _opt_deliver(self, copy: FrMcast, out: Outbox) -> None:
        out.opt_deliver(self._opt_position, copy.message)
        self._opt_position += 1
