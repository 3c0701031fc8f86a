"""One run in the memory of one task, laid out for exact judgement.

Messages are numbered by their ids, what was delivered but never multicast after all others. A *lane* is a group.
Replicas whose logs are equal share their arrays, so a run costs about the memory of one log a group, whatever the
number of replicas. Destinations come from the multicasts table, positions from the `pos` column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ...check.report import listing
from ...core import message_name
from ...trace.schema import CRASH, FINAL, OPTIMISTIC, RESTART, RESTORED, RunInfo
from ..files import RunFiles
from ._read import NULL, Int64s, UnreadableError, numbers, read_columns

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Log:
    """What one process delivered, final or optimistic, by position."""

    process: int
    kind: int
    lane: int  # -1: it is in no group
    msg: Int64s
    given_pos: Int64s | None  # None: 0, 1, 2...
    ts: Int64s | None  # None: no row has one
    stray_group: tuple[int, int] | None  # the first row with another group than the process's own, and that group
    number: Int64s
    addressed: Bools

    def __len__(self) -> int:
        return len(self.msg)

    @property
    def pos(self) -> Int64s:
        return np.arange(len(self.msg)) if self.given_pos is None else self.given_pos


@dataclass(frozen=True, slots=True)
class Lane:
    index: int
    id: int
    members: tuple[int, ...]
    messages: Int64s  # numbers of what is addressed to it, ascending


class Layout:
    def __init__(self, files: RunFiles, reads_logs: bool = True) -> None:
        self.files = files
        self.info: RunInfo = files.info
        self.complete = self.info.complete
        self.correct = frozenset(self.info.correct)
        self._names = {p: f"g{g.id}.p{i}" for g in self.info.groups for i, p in enumerate(g.processes)}
        self.lane_of = {p: i for i, group in enumerate(self.info.groups) for p in group.processes}
        self._read_faults()
        self._read_multicasts()
        self._arrange_lanes()
        self.logs = list(self._read_logs()) if reads_logs else []
        self._number_logs()
        self._final = {log.process: log for log in self.logs if log.kind == FINAL}

    # ------------------------------------------------------------------------------------- small tables

    def _read_faults(self) -> None:
        rows: list[tuple[int, int, str, str]] = []
        for file in self.files.table("faults"):
            table = read_columns(file.path, ("process", "t_us", "what", "detail"))
            rows += zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True)
        rows.sort(key=lambda row: row[1])
        self.restored: dict[int, list[int]] = {}
        down: dict[int, bool] = {}
        for process, _, what, detail in rows:
            if what == RESTORED:
                self.restored.setdefault(process, []).append(self._position_in(process, detail))
            elif what in (CRASH, RESTART):
                down[process] = what == CRASH
        clients = {process for process, is_down in down.items() if is_down and process not in self.lane_of}
        self.faulty = clients | (set(self.lane_of) - self.correct)

    def _position_in(self, process: int, detail: str) -> int:
        try:
            position = json.loads(detail)["position"]
        except (ValueError, RecursionError, TypeError, KeyError):
            position = None
        if type(position) is not int or not 0 <= position < 1 << 63:
            raise UnreadableError(f'process {process} was restored to {detail!r}, not {{"position": N}}')
        return position

    def _read_multicasts(self) -> None:
        msg, sender, seq, sizes, dst = [], [], [], [], []
        for file in self.files.table("multicasts"):
            table = read_columns(file.path, ("msg", "sender", "client_seq", "dst"))
            msg.append(numbers(table, "msg", file.path))
            sender.append(numbers(table, "sender", file.path))
            seq.append(numbers(table, "client_seq", file.path))
            lists = table.column("dst").combine_chunks()
            flat = lists.flatten()
            if lists.null_count or flat.null_count:
                raise UnreadableError(f"{file.path}: column dst has nulls and must have none")
            sizes.append(lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64))
            dst.append(flat.to_numpy(zero_copy_only=False))
        all_ids = joined(msg)
        self.ids, self.row = np.unique(all_ids, return_index=True)  # the first row of each message counts
        self.multicast_rows = len(all_ids)
        self.multicast_count = len(self.ids)
        self.doubled = self._doubled(all_ids)
        self.sender = joined(sender)[self.row]
        self.seq = joined(seq)[self.row]
        self._check_destinations(all_ids, joined(sizes), joined(dst))

    def _doubled(self, all_ids: Int64s) -> list[tuple[int, int]]:
        """Ids that name several messages, and how many."""
        if self.multicast_rows == self.multicast_count:
            return []
        ids, counts = np.unique(all_ids, return_counts=True)
        return [(int(ids[at]), int(counts[at])) for at in np.flatnonzero(counts > 1)[:99]]

    def _check_destinations(self, all_ids: Int64s, sizes: Int64s, dst: Int64s) -> None:
        starts = np.concatenate(([0], np.cumsum(sizes)))
        known = np.array([group.id for group in self.info.groups])
        by_id = np.argsort(known)
        at = np.minimum(np.searchsorted(known, dst, sorter=by_id), len(known) - 1)
        lane = by_id[at]
        wrong = np.flatnonzero(known[lane] != dst)
        if not sizes.all():
            self._refuse(all_ids, int(np.argmin(sizes)), "has no destination")
        if len(wrong):
            row = int(np.searchsorted(starts, wrong[0], side="right")) - 1
            self._refuse(all_ids, row, f"is sent to g{dst[wrong[0]]}, which the run does not know")
        entry_row = np.repeat(np.arange(len(sizes)), sizes)
        keys = np.sort(entry_row * len(known) + lane)
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            self._refuse(all_ids, int(keys[twice[0]]) // len(known), "names a destination twice")
        self.sizes = sizes[self.row]
        self.dst_start = np.concatenate(([0], np.cumsum(self.sizes)))
        shift = np.repeat(starts[self.row] - self.dst_start[:-1], self.sizes)
        self.dst = lane[shift + np.arange(self.dst_start[-1])]

    def _refuse(self, all_ids: Int64s, row: int, what: str) -> None:
        raise UnreadableError(f"{self.files.path}/multicasts: {message_name(int(all_ids[row]))} {what}")

    def _arrange_lanes(self) -> None:
        owner = np.repeat(np.arange(self.multicast_count), self.sizes)
        by_lane = np.argsort(self.dst, kind="stable")
        bounds = np.searchsorted(self.dst[by_lane], np.arange(len(self.info.groups) + 1))
        self.lanes = [
            Lane(index, group.id, group.processes, owner[by_lane[bounds[index] : bounds[index + 1]]])
            for index, group in enumerate(self.info.groups)
        ]

    # --------------------------------------------------------------------------------------------- logs

    def _read_logs(self) -> Iterator[Log]:
        previous: dict[int, Log] = {}
        for process, kind, msg, pos, grp, ts in log_columns(self.files):
            lane = self.lane_of.get(process, -1)
            log = self._log(process, kind, lane, msg, pos, grp, ts)
            twin = previous.get(lane)
            if twin is not None and np.array_equal(twin.msg, log.msg):
                log.msg = twin.msg
                if twin.ts is not None and log.ts is not None and np.array_equal(twin.ts, log.ts):
                    log.ts = twin.ts
            previous[lane] = log
            yield log

    def _log(self, process: int, kind: int, lane: int, msg: Int64s, pos: Int64s, grp: Int64s, ts: Int64s) -> Log:
        if kind not in (FINAL, OPTIMISTIC):
            raise UnreadableError(f"{self.files.path}/deliveries: kind {kind} is neither {FINAL} nor {OPTIMISTIC}")
        plain = len(pos) == 0 or (pos[0] == 0 and pos[-1] == len(pos) - 1 and bool((np.diff(pos) == 1).all()))
        stray = np.flatnonzero(grp != self.lanes[lane].id)[:1].tolist() if lane >= 0 else []
        nothing = np.empty(0, np.int64)
        return Log(
            process,
            kind,
            lane,
            msg,
            None if plain else pos,
            None if (ts == NULL).all() else ts,
            (stray[0], int(grp[stray[0]])) if stray else None,
            nothing,
            nothing.astype(np.bool_),
        )

    def _number_logs(self) -> None:
        unknown = [np.setdiff1d(log.msg, self.ids) for log in self._distinct_logs()]
        self.strays = np.unique(joined(unknown))
        everything = np.concatenate((self.ids, self.strays))
        by_id = np.argsort(everything, kind="stable") if len(self.strays) else None
        done: dict[tuple[int, int], tuple[Int64s, Bools]] = {}
        for log in self.logs:
            key = (log.lane, id(log.msg))
            if key not in done:
                at = np.searchsorted(everything, log.msg, sorter=by_id)
                number = at if by_id is None else by_id[at]
                done[key] = (number, self.is_in_lane(log.lane)[number])
            log.number, log.addressed = done[key]
        self.ids = everything

    def _distinct_logs(self) -> Iterable[Log]:
        return {id(log.msg): log for log in self.logs}.values()

    def is_in_lane(self, lane: int) -> Bools:
        """For each message: is it addressed to this group?"""
        found = np.zeros(self.multicast_count + len(self.strays), np.bool_)
        if lane >= 0:
            found[self.lanes[lane].messages] = True
        return found

    def final_log(self, process: int) -> Log:
        """A member that delivered nothing has an empty log."""
        nothing = np.empty(0, np.int64)
        empty = Log(process, FINAL, self.lane_of[process], nothing, None, None, None, nothing, nothing.astype(np.bool_))
        return self._final.get(process, empty)

    # -------------------------------------------------------------------------------------------- words

    @cached_property
    def delivery_rows(self) -> int:
        return sum(len(log) for log in self.logs)

    def id_of(self, number: int) -> int:
        return int(self.ids[number])

    def message(self, number: int) -> str:
        return message_name(self.id_of(number))

    def name(self, process: int) -> str:
        return self._names.get(process, f"c{process}")

    def listed(self, processes: list[int]) -> str:
        return listing([self.name(process) for process in processes])

    def destinations(self, number: int) -> str:
        lanes = self.dst[self.dst_start[number] : self.dst_start[number + 1]].tolist()
        return listing([f"g{self.lanes[lane].id}" for lane in lanes], limit=8)


def joined(parts: list[npt.NDArray[np.int64]]) -> Int64s:
    if len(parts) == 1:
        return parts[0].astype(np.int64, copy=False)
    return np.concatenate([np.empty(0, np.int64), *parts])


_LOG_COLUMNS = ("process", "kind", "msg", "pos", "grp", "ts")


def log_columns(files: RunFiles) -> Iterator[tuple[int, int, Int64s, Int64s, Int64s, Int64s]]:
    """Process, kind, and the columns msg, pos, grp, ts of each log by position; logs by process and kind."""
    deliveries = files.table("deliveries")
    if all(file.process is not None for file in deliveries):
        logs: dict[tuple[int, int], list[str]] = {}
        for file in sorted(deliveries, key=lambda file: (file.process or 0, file.kind or 0, file.first_pos)):
            logs.setdefault((file.process or 0, file.kind or 0), []).append(file.path)
        sources = list(logs.values())
    else:
        sources = [[file.path for file in deliveries]]
    for paths in sources:
        yield from _split(paths)


def _split(paths: list[str]) -> Iterator[tuple[int, int, Int64s, Int64s, Int64s, Int64s]]:
    """Whatever the order of rows is, each log by position. Files of one log are mostly in order already."""
    parts = [(path, read_columns(path, _LOG_COLUMNS)) for path in paths]
    columns = {
        name: joined([numbers(table, name, path, nullable=name == "ts") for path, table in parts])
        for name in _LOG_COLUMNS
    }
    key = columns["process"] << 8 | (columns["kind"] & 255)
    step, pos_step = np.diff(key), np.diff(columns["pos"])
    if not ((step > 0) | ((step == 0) & (pos_step >= 0))).all():
        order = np.lexsort((columns["pos"], key))
        columns = {name: column[order] for name, column in columns.items()}
        key = key[order]
    bounds = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)] if len(key) else []
    for start, stop in pairwise(bounds):
        part = {name: column[start:stop] for name, column in columns.items()}
        yield int(part["process"][0]), int(part["kind"][0]), part["msg"], part["pos"], part["grp"], part["ts"]
