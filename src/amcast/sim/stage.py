"""A stage for group automata: one process a group, and a script that decides what arrives when.

The simulator draws schedules at random; here each message arrives when the script says so. That serves for the
executions that papers draw, and for flaws that chance hardly finds. The result is a run like any other, for the
checker.

A script has one step a line:

    m1 to g1 g3      the client multicasts m1 to g1 and g3, and m1 arrives where clients enter
    g1 -> g3         the next message from g1 to g3 arrives
    rest             all that waits arrives, and what follows from it
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from ..core import AppMessage, GroupId, MessageId, Topology, UsageError, encode, message_id, message_name
from ..protocols import GroupAutomaton, GroupOutbox
from ..trace import FINAL, GroupInfo, Recorder, Run, RunInfo

STEP_US = 100
_CLIENT = 0
_MULTICAST = re.compile(r"m(\d+) to ((?:g\d+ ?)+)")
_HAND_OVER = re.compile(r"g(\d+) -> g(\d+)")


class Stage:
    """One process a group, and messages that arrive when the caller says so: for directed schedules.

    `build` makes the automaton of a group; `claims` are the properties that its run is checked for.
    """

    def __init__(
        self, protocol: str, claims: Sequence[str], groups: int, build: Callable[[GroupId], GroupAutomaton]
    ) -> None:
        self._protocol = protocol
        self._claims = tuple(claims)
        # The client is process 0, so that message 1 is m1; process 1 is the one of g1.
        self._topology = Topology({group: (group,) for group in range(1, groups + 1)}, (_CLIENT,))
        self._automata = {group: build(group) for group in self._topology.groups}
        self._streams: dict[tuple[GroupId, GroupId], deque[tuple[Any, int]]] = {}
        self._recorder = Recorder(True)
        self._now = 0
        self._said: list[str] = []  # what happened in this step
        self.delivered: dict[GroupId, list[MessageId]] = {group: [] for group in self._topology.groups}

    def play(self, step: str) -> list[str]:
        """Performs one step of a script, and tells what happened."""
        self._said = []
        if match := _MULTICAST.fullmatch(step):
            self.multicast(int(match[1]), *map(int, re.findall(r"\d+", match[2])))
        elif match := _HAND_OVER.fullmatch(step):
            self.hand_over(int(match[1]), int(match[2]))
        elif step == "rest":
            self.hand_over_all()
        else:
            raise UsageError(f"'{step}' is no step of a script: write 'm1 to g1 g3', 'g1 -> g3' or 'rest'")
        return self._said

    def multicast(self, number: int, *dst: GroupId) -> None:
        """The client multicasts its message of this number, and it arrives where clients enter."""
        message = AppMessage(message_id(_CLIENT, number), tuple(sorted(dst)), b"")
        self._recorder.multicast(message.id, _CLIENT, message.seq, message.dst, self._now, 0)
        sent, self._now = self._now, self._now + STEP_US
        for group, automaton in self._automata.items():
            if automaton.is_ingress(message, group):
                process = self._topology.members(group)[0]
                self._recorder.wire(_CLIENT, process, "START", message.id, 0, sent, self._now)
                out = GroupOutbox()
                automaton.on_submit(message, out)
                self._perform(group, out)

    def waiting(self) -> list[tuple[GroupId, GroupId]]:
        """The streams on which something waits to be handed over."""
        return [ends for ends, stream in self._streams.items() if stream]

    def hand_over(self, source: GroupId, to: GroupId) -> Any:
        """The next message of this stream arrives."""
        if (source, to) not in self.waiting():
            raise UsageError(f"nothing waits to go from g{source} to g{to}")
        body, sent = self._streams[source, to].popleft()
        self._now += STEP_US
        self._record_wire(source, to, body, sent, self._now)
        out = GroupOutbox()
        self._automata[to].on_group_message(source, body, out)
        self._perform(to, out)
        return body

    def hand_over_all(self, rng: Random | None = None) -> None:
        """Everything that waits arrives, and what follows from it: stream after stream, or in random order."""
        while waiting := self.waiting():
            self.hand_over(*(rng.choice(waiting) if rng is not None else waiting[0]))

    def run(self) -> Run:
        """What happened so far. The run is complete if no message waits: nothing will happen any more."""
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
            self._said.append(f"g{group} delivers {message_name(message.id)}")
        for to, body in out.sends:
            self._streams.setdefault((group, to), deque()).append((body, self._now))
            self._said.append(f"g{group} sends {_kind(body)} {_about(body)} to g{to}")

    def _record_wire(self, source: GroupId, to: GroupId, body: Any, sent: int, received: int | None) -> None:
        about = body.id if body.id >= 0 else None
        sender, receiver = (self._topology.members(group)[0] for group in (source, to))
        self._recorder.wire(sender, receiver, _kind(body), about, len(encode(body)), sent, received)


def _kind(body: Any) -> str:
    return str(body.__struct_config__.tag).upper()


def _about(body: Any) -> str:
    """Negative ids are the protocol's own: a flush is the only such message."""
    return message_name(body.id) if body.id >= 0 else f"flush {-body.id}"
