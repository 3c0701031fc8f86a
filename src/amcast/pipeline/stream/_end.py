"""What only the end of a run can tell: what was never delivered where it should have been."""

from __future__ import annotations

from ...core import MessageId, ProcessId, message_name
from ...core.ids import sender_of
from ...trace.schema import FINAL, RunInfo
from .reporter import AT_THE_END, Reporter, groups_text
from .state import LogState, WatchState


def check_end(info: RunInfo, state: WatchState, report: Reporter) -> None:
    for name in AT_THE_END:
        report.begin(name)
        if state.unjudged is not None:
            report.unknown(name, state.unjudged)
    faulty = _faulty(info, state)
    missing = _missing(info, state)
    for message, processes in missing.items():
        one = state.open.get(message)
        sender = sender_of(message) if one is None else one.sender
        name = message_name(message)
        if sender not in faulty and not report.is_full("validity"):
            to = "" if one is None else f" to {groups_text(one.dst)}"
            lost = f"{report.name(sender)} multicast {name}{to}, but {report.listing(processes)} never delivered it"
            report.fail("validity", [message], processes, lost)
        witness = _witness(state, message, processes)
        if witness is not None and not report.is_full("agreement"):
            what = f"{report.name(witness)} delivered {name}, but {report.listing(processes)} never did"
            report.fail("agreement", [message], [witness, *processes], what)
    _check_same_end(info, state, report)


def _faulty(info: RunInfo, state: WatchState) -> set[ProcessId]:
    """A member is correct if the run says so; a client unless it crashed and did not come back."""
    members = {process for group in info.groups for process in group.processes}
    down = {process for process, (_, is_down) in state.down.items() if is_down and process not in members}
    return down | (members - set(info.correct))


def _judged(info: RunInfo, state: WatchState) -> list[LogState]:
    logs = [state.logs[process << 1 | FINAL] for process in info.correct]
    return [log for log in logs if not log.halted and not log.diverged]


def _missing(info: RunInfo, state: WatchState) -> dict[MessageId, list[ProcessId]]:
    """Messages that correct processes lack: their group never delivered it, or they are behind their group."""
    missing: dict[MessageId, list[ProcessId]] = {}
    logs = _judged(info, state)
    for message, one in state.open.items():
        lacking = [log.process for log in logs if log.group in one.left]
        if lacking:
            missing[message] = lacking
    for log in logs:
        assert log.group is not None, "a correct process is in a group"
        group = state.groups[log.group]
        for message in group.msgs[max(0, log.next - group.base) :]:
            if message not in state.repeated:  # it may be in what this log has
                missing.setdefault(message, []).append(log.process)
    return missing


def _witness(state: WatchState, message: MessageId, missing: list[ProcessId]) -> ProcessId | None:
    """Somebody who has it."""
    one = state.open.get(message)
    if one is not None:
        done = [group for group in one.dst if group not in one.left]
    else:
        done = [group.id for group in state.groups.values() if message in group.msgs]
    members = [process for group in done for process in state.groups[group].members if process not in missing]
    return max(members, key=lambda process: state.logs[process << 1 | FINAL].next, default=None)


def _check_same_end(info: RunInfo, state: WatchState, report: Reporter) -> None:
    logs = _judged(info, state)
    for group in state.groups.values():
        mine = [log for log in logs if log.group == group.id]
        longest = max(mine, key=lambda log: log.next, default=None)
        for log in mine:
            if longest is not None and group.base <= log.next < min(longest.next, group.end):
                message = group.msgs[log.next - group.base]
                one = f"{report.name(log.process)} delivered {log.next} messages and then nothing"
                what = f"{one}, while {report.name(longest.process)} went on with {message_name(message)}"
                report.fail("replicas", [message], [log.process, longest.process], what)
