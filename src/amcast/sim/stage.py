"""A stage for group automata: one process a group, and the schedule in the hands of whoever writes it.

The simulator draws schedules; here each message is handed over when the script says so. It serves for the executions
that papers draw, and for flaws that chance hardly finds. What happened is a run like any other, for the checker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ..core import AppMessage, GroupId, MessageId, encode, grid, message_id
from ..protocols import GroupAutomaton, GroupOutbox
from ..trace import FINAL, GroupInfo, Recorder, Run, RunInfo

STEP_US = 100


class Stage:
    def __init__(
        self, protocol: str, claims: Sequence[str], groups: int, build: Callable[[GroupId], GroupAutomaton]
    ) -> None:
        self._protocol = protocol
        self._claims = tuple(claims)
        self._topology = grid(groups, 1, 1)
        self._automata = {group: build(group) for group in self._topology.groups}
        self._streams: dict[tuple[GroupId, GroupId], deque[tuple[Any, int]]] = {}
        self._recorder = Recorder(True)
        self._now = 0
        self._sent = 0
        self.delivered: dict[GroupId, list[MessageId]] = {group: [] for group in self._topology.groups}

    def multicast(self, *dst: GroupId) -> MessageId:
        """A client multicasts to these groups, and its message arrives where clients enter."""
        client = self._topology.clients[0]
        message = AppMessage(message_id(client, self._sent), tuple(sorted(dst)), b"")
        self._sent += 1
        self._recorder.multicast(message.id, client, message.seq, message.dst, self._now, 0)
        sent, self._now = self._now, self._now + STEP_US
        for group, automaton in self._automata.items():
            if automaton.is_entry(message, group):
                process = self._topology.members(group)[0]
                self._recorder.wire(client, process, "START", message.id, 0, sent, self._now)
                out = GroupOutbox()
                automaton.on_submit(message, out)
                self._perform(group, out)
        return message.id

    def waiting(self) -> list[tuple[GroupId, GroupId]]:
        """The streams on which something waits to be handed over."""
        return [ends for ends, stream in self._streams.items() if stream]

    def hand_over(self, source: GroupId, to: GroupId) -> Any:
        """The next message of this stream arrives."""
        body, sent = self._streams[source, to].popleft()
        self._now += STEP_US
        self._record_wire(source, to, body, sent, self._now)
        out = GroupOutbox()
        self._automata[to].on_group_message(source, body, out)
        self._perform(to, out)
        return body

    def hand_over_all(self, rng: Random | None = None) -> None:
        """Everything that waits arrives, and what follows from it: stream after stream, or as the dice fall."""
        while waiting := self.waiting():
            self.hand_over(*(rng.choice(waiting) if rng is not None else waiting[0]))

    def run(self) -> Run:
        """What happened so far. If nothing waits any more, nothing will ever happen: the run is complete."""
        for (source, to), stream in self._streams.items():
            for body, sent in stream:
                self._record_wire(source, to, body, sent, None)
        topology = self._topology
        info = RunInfo(
            run_id=f"{self._protocol}-stage",
            protocol=self._protocol,
            seed=0,
            complete=not self.waiting(),
            groups=tuple(GroupInfo(group, topology.members(group)) for group in topology.groups),
            correct=topology.processes,
            claims=self._claims,
            extra={"driver": "stage", "clients": list(topology.clients)},
        )
        return self._recorder.run(info)

    def _perform(self, group: GroupId, out: GroupOutbox) -> None:
        process = self._topology.members(group)[0]
        for message, ts in out.deliveries:
            position = len(self.delivered[group])
            self.delivered[group].append(message.id)
            self._recorder.delivery(process, group, position, message.id, FINAL, ts, self._now)
        for to, body in out.sends:
            self._streams.setdefault((group, to), deque()).append((body, self._now))

    def _record_wire(self, source: GroupId, to: GroupId, body: Any, sent: int, received: int | None) -> None:
        kind = str(body.__struct_config__.tag).upper()
        about = body.id if body.id >= 0 else None
        sender, receiver = (self._topology.members(group)[0] for group in (source, to))
        self._recorder.wire(sender, receiver, kind, about, len(encode(body)), sent, received)
