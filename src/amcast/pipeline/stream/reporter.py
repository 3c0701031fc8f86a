"""Collects what a watch found: the verdict on each property so far, and each violation once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...check import Verdict, Violation
from ...check.report import CUT_SHORT, Findings, always_checked, listing, not_recorded, worst
from ...core import ProcessId, client_name, process_label
from ...trace.schema import RunInfo
from .state import WatchState

ONLINE = ("positions", "integrity", "replicas", "prefix", "acyclic")
AT_THE_END = ("validity", "agreement")


def judged_online(claims: Collection[str]) -> tuple[str, ...]:
    """A watch does not judge the order of conflicts: of a run that claims it, it judges no order between groups."""
    judged = always_checked(claims)
    return tuple(name for name in ONLINE if name in judged)


class Reporter(Findings):
    """Verdicts, reasons and counts live in the state of the watch, so that they survive a kill."""

    def __init__(self, info: RunInfo, state: WatchState) -> None:
        super().__init__(info.missing, state.verdicts, state.reasons, state.violations, info.unproven)
        self._state = state
        self._names = {
            process: process_label(group.id, index)
            for group in info.groups
            for index, process in enumerate(group.processes)
        }
        for name in judged_online(info.claims):
            state.verdicts.setdefault(name, "pass")
            if name in info.unproven:
                self.unknown(name, info.unproven[name])
        for name in AT_THE_END:
            if name not in state.verdicts:
                self.unknown(name, CUT_SHORT)
        self.look_for_evidence(info)

    def look_for_evidence(self, info: RunInfo) -> None:
        """A run tells what was not recorded of it, at the latest at its end."""
        self.not_recorded = not_recorded(info.missing)
        if self.not_recorded is not None:
            self.unjudged(self.not_recorded)

    def unjudged(self, reason: str) -> None:
        """Some deliveries are not judged any more: they may break any property, so no verdict is "pass" from now on."""
        reason = self.not_recorded or reason
        self._state.unjudged = reason
        for name in (*ONLINE, "timestamps"):
            if name in self._state.verdicts:
                self.unknown(name, reason)

    def take(self) -> list[Violation]:
        """The violations that were found since the last call."""
        found, self.violations = self.violations, []
        return found

    def name(self, process: ProcessId) -> str:
        return self._names.get(process, client_name(process))

    def listing(self, processes: list[ProcessId]) -> str:
        return listing([self.name(process) for process in processes])


def verdict_of(state: WatchState) -> Verdict:
    return worst(state.verdicts.values())


def groups_text(groups: Sequence[int]) -> str:
    return listing([f"g{group}" for group in groups], limit=len(groups))
