"""Collects what a watch found: the verdict on each property so far, and each violation once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core import MessageId, ProcessId
from ...trace.schema import RunInfo
from ..checks.findings import CUT_SHORT, VIOLATIONS_PER_PROPERTY, Verdict, Violation, listing, worst
from .state import WatchState

ONLINE = ("positions", "integrity", "replicas", "prefix", "acyclic")
AT_THE_END = ("validity", "agreement")


class Reporter:
    def __init__(self, info: RunInfo, state: WatchState) -> None:
        self._state = state
        self._names = {
            process: f"g{group.id}.p{index}" for group in info.groups for index, process in enumerate(group.processes)
        }
        self._new: list[Violation] = []
        for name in ONLINE:
            state.verdicts.setdefault(name, "pass")
        for name in AT_THE_END:
            if name not in state.verdicts:
                self.unknown(name, CUT_SHORT)

    def begin(self, name: str) -> None:
        """From here on the property holds unless something is found against it."""
        if self._state.verdicts.get(name) != "fail":
            self._state.verdicts[name] = "pass"
            self._state.reasons.pop(name, None)

    def unknown(self, name: str, reason: str) -> None:
        if self._state.verdicts.get(name) != "fail":
            self._state.verdicts[name] = "unknown"
            self._state.reasons[name] = reason

    def unjudged(self, reason: str) -> None:
        """Some deliveries are not judged any more: they may break any property, so no verdict is "pass" from now on."""
        self._state.unjudged = reason
        for name in (*ONLINE, "timestamps"):
            if name in self._state.verdicts:
                self.unknown(name, reason)

    def fail(self, name: str, messages: Iterable[MessageId], processes: Iterable[ProcessId], explanation: str) -> None:
        """The first few of each property are told: one broken row can break thousands of others."""
        state = self._state
        state.verdicts[name] = "fail"
        state.reasons.pop(name, None)
        count = state.violations.get(name, 0)
        state.violations[name] = count + 1
        if count < VIOLATIONS_PER_PROPERTY:
            self._new.append(Violation(name, list(messages), list(processes), explanation))

    def is_full(self, name: str) -> bool:
        return self._state.violations.get(name, 0) >= VIOLATIONS_PER_PROPERTY

    def take(self) -> list[Violation]:
        """What was found since the last call."""
        found, self._new = self._new, []
        return found

    def name(self, process: ProcessId) -> str:
        return self._names.get(process, f"c{process}")

    def listing(self, processes: list[ProcessId]) -> str:
        return listing([self.name(process) for process in processes])


def verdict_of(state: WatchState) -> Verdict:
    return worst(state.verdicts.values())


def groups_text(groups: Sequence[int]) -> str:
    return listing([f"g{group}" for group in groups], limit=len(groups))
