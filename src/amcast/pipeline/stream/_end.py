"""The checks of a complete run: validity, agreement, and that replicas end alike.

They are about deliveries that never came, which only the end of a run can tell from late ones.
"""

from __future__ import annotations

from ...core import MessageId, ProcessId, message_name
from ...core.ids import SEQ_LIMIT, sender_of, seq_of
from ...trace.schema import FINAL, RunInfo
from .reporter import AT_THE_END, Reporter, groups_text
from .state import Track, WatchState


def check_end(info: RunInfo, state: WatchState, report: Reporter) -> None:
    for name in AT_THE_END:
        report.begin(name)
        if state.unjudged is not None:
            report.unknown(name, state.unjudged)
    if info.missing:
        return
    faulty = _faulty(info, state)
    missing = _missing(info, state)
    for message, processes in missing.items():
        one = state.open.get(message)
        sender = sender_of(message) if one is None else one.sender
        name = message_name(message)
        is_correct = seq_of(message) < faulty.get(sender, SEQ_LIMIT)
        if is_correct and not report.is_full("validity"):
            to = "" if one is None else f" to {groups_text(one.dst)}"
            lost = f"{report.name(sender)} multicast {name}{to}, but {report.listing(processes)} never delivered it"
            report.fail("validity", [message], processes, lost)
        witness = _witness(state, message, processes)
        if witness is not None and not report.is_full("agreement"):
            what = f"{report.name(witness)} delivered {name}, but {report.listing(processes)} never did"
            report.fail("agreement", [message], [witness, *processes], what)
    _check_same_end(info, state, report)


def _faulty(info: RunInfo, state: WatchState) -> dict[ProcessId, int]:
    """Members that run.json does not list as correct, and clients that crashed and did not restart.

    With the sequence number below which their messages count as those of a correct process: they had been answered.
    """
    members = {process for group in info.groups for process in group.processes}
    down = {process for process, (_, is_down) in state.down.items() if is_down and process not in members}
    return {process: state.settled_below.get(process, 0) for process in down} | dict.fromkeys(
        members - set(info.correct), 0
    )


def _judged(info: RunInfo, state: WatchState) -> list[Track]:
    tracks = [state.tracks[process << 1 | FINAL] for process in info.correct]
    return [track for track in tracks if not track.halted and not track.diverged]


def _missing(info: RunInfo, state: WatchState) -> dict[MessageId, list[ProcessId]]:
    """Message -> correct processes that lack it: their whole group does, or they end before others of their group."""
    missing: dict[MessageId, list[ProcessId]] = {}
    tracks = _judged(info, state)
    for message, one in state.open.items():
        lacking = [track.process for track in tracks if track.group in one.left]
        if lacking:
            missing[message] = lacking
    for track in tracks:
        assert track.group is not None, "a correct process is in a group"
        group = state.groups[track.group]
        for message in group.msgs[max(0, track.next - group.base) :]:
            if message not in state.repeated:  # the process may have delivered it at its other position
                missing.setdefault(message, []).append(track.process)
    return missing


def _witness(state: WatchState, message: MessageId, missing: list[ProcessId]) -> ProcessId | None:
    """A process that delivered the message, if any did."""
    one = state.open.get(message)
    if one is not None:
        done = [group for group in one.dst if group not in one.left]
    else:
        done = [group.id for group in state.groups.values() if message in group.msgs]
    members = [process for group in done for process in state.groups[group].members if process not in missing]
    return max(members, key=lambda process: state.tracks[process << 1 | FINAL].next, default=None)


def _check_same_end(info: RunInfo, state: WatchState, report: Reporter) -> None:
    tracks = _judged(info, state)
    for group in state.groups.values():
        mine = [track for track in tracks if track.group == group.id]
        longest = max(mine, key=lambda track: track.next, default=None)
        for track in mine:
            if longest is not None and group.base <= track.next < min(longest.next, group.end):
                message = group.msgs[track.next - group.base]
                one = f"{report.name(track.process)} delivered {track.next} messages and then nothing"
                what = f"{one}, while {report.name(longest.process)} went on with {message_name(message)}"
                report.fail("replicas", [message], [track.process, longest.process], what)
