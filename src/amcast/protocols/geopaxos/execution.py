"""In which order the replicas of a group execute what all sites have ordered.

Every replica executes every operation, in an order that agrees with the order of each site (see `track`). Operations
that share an object share a site, so all replicas execute them alike; operations that share none are executed as they
come.

The replicas of one group execute everything in the same order: then a group has one sequence of deliveries, a state
that one replica hands over suits the others, and a restart repeats what was. That order follows from the group's own
log. It is the order of its own site, and before each operation of several sites comes whatever the other sites have
before it. What other sites order and nothing here waits for comes where the group's log has a mark for it. Nobody waits
for a mark but the operations that it lets through.

One order extends those of all sites: by timestamp; then operations of several sites before a site's own; then by site.
What is executed together is executed in this order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

import msgspec

from ...core import AppMessage, GroupId, MessageId, ProcessId, SeenMessages, SeenOfSender
from .messages import Attempt, Key, MoveNote, Operation, decode_note, decode_operation
from .track import NEVER, NOTHING, Own, Track, multi_key

NOTES_MAX = 4_096  # objects of which is remembered why they moved


class Step(NamedTuple):
    """What is executed next: an operation, or a mark, which does nothing itself."""

    key: Key
    sites: tuple[GroupId, ...]
    attempt: Attempt | None
    message: AppMessage | None


class ExecutionState(msgspec.Struct, array_like=True):
    steps: int = 0
    done: dict[GroupId, Key] = {}
    executed: dict[str, dict[ProcessId, SeenOfSender]] = {}
    void: dict[MessageId, int] = {}
    moved: dict[str, GroupId] = {}
    notes: dict[str, MoveNote] = {}


class Executed:
    """The operations that a replica has executed, whatever attempt brought them: remembered for each object.

    Only so do all replicas agree on what is a repetition. Those that touch an object come in one order; a client that
    gives one id to operations on different objects gets both executed, everywhere. And what a client calls settled when
    it sends an operation on an object was executed before it, as far as it touches the same object; an operation on
    other objects says nothing, since it may overtake the one that is settled.
    """

    def __init__(self, objects: Mapping[str, Mapping[ProcessId, SeenOfSender]]) -> None:
        self._of_object: dict[str, SeenMessages] = {}
        for name, senders in objects.items():
            self._seen(name).load(dict(senders))

    def _seen(self, name: str) -> SeenMessages:
        return self._of_object.setdefault(name, SeenMessages())

    def has(self, id_: MessageId, operation: Operation) -> bool:
        seen = [self._of_object.get(name) for name in operation.objects]
        return any(each is not None and each.is_known(id_) for each in seen)

    def add(self, message: AppMessage, operation: Operation) -> None:
        for name in operation.objects:
            self._seen(name).admit(message)

    def dump(self) -> dict[str, dict[ProcessId, SeenOfSender]]:
        return {name: seen.dump() for name, seen in self._of_object.items()}


class Placement:
    """The preferred site of each object. An object that was never moved has the site that its name says."""

    def __init__(
        self, sites: Sequence[GroupId], moved: Mapping[str, GroupId], notes: Mapping[str, MoveNote] | None = None
    ) -> None:
        self._sites = tuple(sites)
        self.moved = dict(moved)
        self.notes = dict(notes or {})  # why the objects that moved last are where they are, the latest last

    def site(self, name: str) -> GroupId:
        return self.moved.get(name) or initial_site(name, self._sites)

    def sites_of(self, operation: Operation) -> tuple[GroupId, ...]:
        """psite(op). A move concerns the new site as well."""
        more = (operation.site,) if operation.site in self._sites else ()
        return tuple(sorted({*map(self.site, operation.objects), *more}))

    def is_placed(self, name: str) -> bool:
        """Whether somebody moved it, as far as it is remembered."""
        return name in self.moved or name in self.notes

    def move(self, operation: Operation, note: MoveNote | None = None) -> None:
        """A group that is no site gets no objects. Without a note it is a client that moves them."""
        if operation.site not in self._sites:
            return
        for name in operation.objects:
            source = self.site(name)
            if source != operation.site:
                self.notes.pop(name, None)
                self.notes[name] = note or MoveNote(None, source, "a client asked for it")
                if len(self.notes) > NOTES_MAX:
                    del self.notes[next(iter(self.notes))]
            self.moved.pop(name, None)
            if self.site(name) != operation.site:
                self.moved[name] = operation.site


def initial_site(name: str, sites: Sequence[GroupId]) -> GroupId:
    return sites[crc32(name.encode()) % len(sites)]


class Execution:
    _placement_type = Placement

    def __init__(self, group: GroupId, sites: Sequence[GroupId], tracks: dict[GroupId, Track]) -> None:
        self._group = group
        self._site_ids = tuple(sites)
        self.tracks = tracks
        self.load(ExecutionState())

    def load(self, state: ExecutionState) -> None:
        self.steps = state.steps  # that were made: operations, void attempts and marks
        self.done = dict(state.done)  # the place of the last one of each site
        self.executed = Executed(state.executed)
        self.void = dict(state.void)  # operations that are not executed yet -> their last attempt that was void
        self.placement = self._placement_type(self._site_ids, state.moved, state.notes)

    def dump(self) -> ExecutionState:
        placement = self.placement
        executed = self.executed.dump()
        return ExecutionState(self.steps, self.done, executed, self.void, placement.moved, placement.notes)

    def drop_executed(self) -> None:
        for group, track in self.tracks.items():
            track.drop_executed(self.done.get(group, NOTHING))

    # -- what comes next

    def next_steps(self) -> list[Step]:
        """The next steps that belong together, in their order; none if what comes next is not known yet."""
        own = self.tracks[self._group]
        key = min(own.first_own, own.first_final)
        if key == NEVER or own.first_pending < key:
            return []
        if key == own.first_own:
            step, bounds = self._own_step(own), own.own[0].mark.bounds if own.own[0].mark is not None else {}
        else:
            step = self._several_step(own.by_ts[0][1], key)
            bounds = dict.fromkeys(step.sites, key)
            if not self._is_final(step.sites, own.by_ts[0][1]):
                return []
        before = self._before(bounds)
        return [] if before is None else [*before, step]

    def _own_step(self, track: Track, at: int = 0) -> Step:
        each: Own = track.own[at]
        return Step(each.key, (track.group,), each.attempt, each.message)

    def _several_step(self, attempt: Attempt, key: Key) -> Step:
        messages = [self.tracks[site].messages.get(attempt) for site in attempt.dst]
        return Step(key, attempt.dst, attempt, next((message for message in messages if message is not None), None))

    def _is_final(self, sites: Iterable[GroupId], attempt: Attempt) -> bool:
        return all(attempt in self.tracks[site].final for site in sites)

    def _before(self, bounds: Mapping[GroupId, Key]) -> list[Step] | None:
        """All that the sites have before these places, in order; None if it is not known yet."""
        bounds = dict(bounds)
        several: dict[Attempt, Step] = {}
        todo = list(bounds)
        while todo:
            track = self.tracks[todo.pop()]
            bound = bounds[track.group]
            if track.end < bound or track.first_pending < bound:
                return None
            for ts, attempt in track.by_ts:
                key = multi_key(ts)
                if key >= bound:
                    break
                if attempt in several:
                    continue
                if not self._is_final(attempt.dst, attempt):
                    return None
                several[attempt] = self._several_step(attempt, key)
                for site in attempt.dst:
                    if bounds.get(site, NOTHING) < key:
                        bounds[site] = key
                        todo.append(site)
        steps = [*several.values()]
        for site, bound in bounds.items():
            for each in self.tracks[site].own:
                if each.key >= bound:
                    break
                steps.append(Step(each.key, (site,), each.attempt, each.message))
        steps.sort(key=_place)
        return steps

    # -- executing

    def take(self, step: Step) -> Operation | None:
        """Makes a step. Returns the operation if it is executed; otherwise the attempt is void, or a repetition."""
        self.steps += 1
        for site in step.sites:
            track = self.tracks[site]
            assert self.done.get(site, NOTHING) < step.key, "steps agree with the order of each site"
            self.done[site] = step.key
            if len(step.sites) > 1:
                assert step.attempt is not None
                track.drop_final(step.attempt)
            else:
                first = track.drop_own()
                assert first.key == step.key, "the operations of a site are executed in the order of its log"
        attempt, message = step.attempt, step.message
        if attempt is None:
            return None
        if attempt.id < 0:
            return self._take_placed(attempt, message)
        operation = None if message is None else decode_operation(message.payload)
        if operation is not None and self.executed.has(attempt.id, operation):
            return None
        if message is None or operation is None or not self._is_valid(operation, attempt):
            self.void[attempt.id] = max(attempt.number, self.void.get(attempt.id, -1))
            return None
        self.executed.add(message, operation)
        self.void.pop(attempt.id, None)
        if operation.site:
            self.placement.move(operation)
        return operation

    def _take_placed(self, attempt: Attempt, message: AppMessage | None) -> Operation | None:
        """A move that a placer made (`placer.py`). There is one attempt, and doing it twice changes nothing."""
        operation = None if message is None else decode_operation(message.payload)
        if operation is None or not self._is_valid(operation, attempt):
            return None
        self.placement.move(operation, decode_note(operation.body))
        return operation

    def _is_valid(self, operation: Operation, attempt: Attempt) -> bool:
        """Whether the attempt was made with the sites of its objects as they are now.

        Only moves from or to a site of the attempt can change the answer, and they are ordered with it there.
        """
        return set(self.placement.sites_of(operation)) <= set(attempt.dst)

    # -- marks

    def executable(self) -> dict[GroupId, Key]:
        """How far the other sites' orders can be executed now, without anything that concerns the own site. Only the
        sites where there is something to execute."""
        limits = {site: min(track.end, track.first_pending) for site, track in self.tracks.items()}
        limits[self._group] = NOTHING
        several = sorted({pair[0]: pair[1] for track in self.tracks.values() for pair in track.by_ts}.items())
        for ts, attempt in several:
            key = multi_key(ts)
            if not self._is_final(attempt.dst, attempt) or any(limits[site] <= key for site in attempt.dst):
                for site in attempt.dst:
                    limits[site] = min(limits[site], key)
        bounds: dict[GroupId, Key] = {}
        for site, track in self.tracks.items():
            if site != self._group and min(track.first_own, track.first_final) < limits[site]:
                bounds[site] = limits[site]
        return bounds


def _place(step: Step) -> tuple[int, bool, GroupId, int]:
    """In the order that extends those of all sites."""
    return step.key[0], len(step.sites) == 1, step.sites[0], step.key[1]
