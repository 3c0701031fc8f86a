"""The wait window: how long after its timestamp a message should have arrived from every sender.

For each sender the average of (now - timestamp) over its last 100 messages, delay and clock skew together; the window
is the largest of them.
"""

from __future__ import annotations

from collections import deque

from ...core import ProcessId

SAMPLES = 100
_SENDERS_MAX = 1_024  # those that were heard first are forgotten, and counted anew when they send again


class _Average:
    __slots__ = ("_samples", "_sum", "value")

    def __init__(self) -> None:
        self._samples: deque[int] = deque()
        self._sum = 0
        self.value = 0

    def add(self, sample: int) -> None:
        self._samples.append(sample)
        self._sum += sample
        if len(self._samples) > SAMPLES:
            self._sum -= self._samples.popleft()
        self.value = self._sum // len(self._samples)


class WaitWindow:
    def __init__(self) -> None:
        self._averages: dict[ProcessId, _Average] = {}
        self.length_us = 0

    def add(self, sender: ProcessId, took_us: int) -> None:
        average = self._averages.get(sender)
        if average is None:
            average = self._averages[sender] = _Average()
            if len(self._averages) > _SENDERS_MAX:
                del self._averages[next(iter(self._averages))]
        average.add(took_us)
        self.length_us = max(each.value for each in self._averages.values())
