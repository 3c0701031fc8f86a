"""The network: how long a message takes, whether it arrives at all, and in which order.

A latency model says how long messages take without faults; the network adds the faults that are in force.
"""

from __future__ import annotations

from itertools import cycle
from random import Random

from ..core import Latency, ProcessId, Topology

_FACTORS = 8_192  # normally distributed numbers, drawn once and used in a cycle: to draw one a message costs too much


class _Link:
    __slots__ = ("last_us", "mean_us")

    def __init__(self, mean_us: int) -> None:
        self.mean_us = mean_us
        self.last_us = 0  # when the latest message arrives


class Network:
    def __init__(self, latency: Latency, topology: Topology, fifo: bool, rng: Random) -> None:
        self._latency = latency
        self._topology = topology
        self._fifo = fifo
        self._rng = rng
        # No delay is below a quarter of the mean, however wide the distribution.
        factors = [max(0.25, rng.gauss(1.0, latency.sigma)) for _ in range(_FACTORS)] if latency.sigma else [1.0]
        self._factors = cycle(factors)
        self._links: dict[tuple[ProcessId, ProcessId], _Link] = {}
        # Faults in force
        self.loss = 0.0
        self.duplication = 0.0
        self.reordering = 0.0  # how likely a message is held up, letting later ones pass
        self.reorder_us = 0
        self._cuts: dict[tuple[ProcessId, ProcessId], int] = {}

    def cut(self, src: ProcessId, dst: ProcessId) -> None:
        self._cuts[src, dst] = self._cuts.get((src, dst), 0) + 1

    def mend(self, src: ProcessId, dst: ProcessId) -> None:
        """Cuts may overlap: a link works again when all of them are mended."""
        left = self._cuts.get((src, dst), 0) - 1
        if left > 0:
            self._cuts[src, dst] = left
        else:
            self._cuts.pop((src, dst), None)

    def is_faulty(self) -> bool:
        return bool(self._cuts or self.loss or self.duplication or self.reordering)

    def arrival(self, src: ProcessId, dst: ProcessId, sent: int) -> int:
        """When a message arrives if there are no faults."""
        link = self._links.get((src, dst))
        if link is None:
            link = self._links[src, dst] = _Link(self._mean_us(src, dst))
        arrival = sent + int(link.mean_us * next(self._factors) + 0.5)
        if self._fifo:
            if arrival < link.last_us:
                return link.last_us
            link.last_us = arrival
        return arrival

    def _mean_us(self, src: ProcessId, dst: ProcessId) -> int:
        """A process hears itself at once."""
        return 0 if src == dst else self._latency.mean_us(self._topology.region(src), self._topology.region(dst))

    def arrivals(self, src: ProcessId, dst: ProcessId, sent: int) -> tuple[int, ...]:
        """When the copies of a message arrive: none if it is lost, two if it is duplicated."""
        if src == dst:
            return (sent,)
        if (src, dst) in self._cuts or (self.loss and self._rng.random() < self.loss):
            return ()
        if self.reordering and self._rng.random() < self.reordering:
            # It does not count as the link's last arrival, so that later messages overtake it.
            arrival = sent + self._mean_us(src, dst) + self._rng.randrange(self.reorder_us + 1)
        else:
            arrival = self.arrival(src, dst, sent)
        if self.duplication and self._rng.random() < self.duplication:
            return (arrival, arrival + self._rng.randrange(4 * self._mean_us(src, dst) + self.reorder_us + 1))
        return (arrival,)
