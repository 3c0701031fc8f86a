"""Messages that are not delivered yet, ordered by timestamp: the paper's buffer B.

Each message has a lower bound of its final timestamp (the tentative one of this group), then the final one. The
smallest may be delivered once it is final. A heap with lazy deletion keeps every operation logarithmic.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from .ids import MessageId
from .timestamps import Timestamp


class PendingSet:
    def __init__(self) -> None:
        self._heap: list[tuple[Timestamp, MessageId]] = []
        self._bound: dict[MessageId, Timestamp] = {}
        self._final: set[MessageId] = set()

    def __len__(self) -> int:
        return len(self._bound)

    def __contains__(self, message: MessageId) -> bool:
        return message in self._bound

    def is_final(self, message: MessageId) -> bool:
        return message in self._final

    def add(self, message: MessageId, tentative: Timestamp) -> None:
        assert message not in self._bound, "a message gets one tentative timestamp in a group"
        self._bound[message] = tentative
        heappush(self._heap, (tentative, message))

    def finalize(self, message: MessageId, final: Timestamp) -> None:
        assert final >= self._bound[message], "a final timestamp is the maximum of the tentative ones"
        assert message not in self._final, "a final timestamp is set once"
        self._final.add(message)
        if final != self._bound[message]:
            self._bound[message] = final
            heappush(self._heap, (final, message))

    def discard(self, message: MessageId) -> None:
        """A message that will never be final."""
        del self._bound[message]
        self._final.discard(message)

    def pop_deliverable(self) -> tuple[MessageId, Timestamp] | None:
        """The message with the smallest timestamp, if that timestamp is final."""
        while self._heap:
            bound, message = self._heap[0]
            if self._bound.get(message) != bound:
                heappop(self._heap)  # stale: the message has a larger bound now, or is delivered
                continue
            if message not in self._final:
                return None
            heappop(self._heap)
            del self._bound[message]
            self._final.discard(message)
            return message, bound
        return None

    def dump(self) -> list[tuple[MessageId, Timestamp, bool]]:
        return [(message, bound, message in self._final) for message, bound in self._bound.items()]

    def load(self, entries: list[tuple[MessageId, Timestamp, bool]]) -> None:
        self._bound = {message: bound for message, bound, _ in entries}
        self._final = {message for message, _, final in entries if final}
        self._heap = [(bound, message) for message, bound, _ in entries]
        heapify(self._heap)
