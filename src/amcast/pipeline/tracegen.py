"""Generates traces of any size, correct or with violations that the caller chooses, for benchmarks and tests.

Messages are numbered, and every process delivers the messages to its group in the order of their numbers. Each group
lags behind by a time that swings slowly between 0 and `in_flight_us`, at a pace of its own: so at every moment many
messages are delivered by some groups and not yet by others. Everything is drawn from one seed, chunk by chunk, so that
memory is bounded by a chunk, whatever the size of the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import UsageError
from ..core.ids import SEQ_BITS, SEQ_LIMIT
from ..trace import schema as tables
from ..trace.limits import ROW_GROUP_ROWS
from ..trace.schema import FINAL, RUN_FILE, GroupInfo, RunInfo, encode_run_info
from ..trace.whole import new_folder
from ._arrow import arrow_schema, parquet_options
from ._damage import DAMAGES, Chunk

MULTICASTS, DELIVERIES, FAULTS = (
    arrow_schema(table) for table in (tables.MULTICASTS, tables.DELIVERIES, tables.FAULTS)
)

_TS_STEP = 16  # messages that a damage inserts get the timestamps in between

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TraceSpec:
    deliveries: int = 100_000  # about
    groups: int = 16
    replicas: int = 3
    destinations: int = 2  # at most; half of the messages have one
    skew: float = 0.0  # popularity of the n-th group is 1 / n^skew
    in_flight_us: int = 2_000
    rate: int = 100_000  # messages a second
    clients: int = 64
    stamped: bool = True
    seed: int = 0
    run_id: str = "generated"
    claims: tuple[str, ...] = ()
    damages: tuple[str, ...] = ()  # names from DAMAGES; done once each, in the middle of the trace ("tail": at its end)
    chunk_messages: int = 1 << 19

    @property
    def messages(self) -> int:
        return max(1, round(self.deliveries / (self.replicas * self._destinations_mean)))

    @property
    def _destinations_mean(self) -> float:
        most = min(self.destinations, self.groups)
        return 1.0 if most == 1 else (1 + (2 + most) / 2) / 2


def generate_trace(path: str | Path, spec: TraceSpec) -> RunInfo:
    """Writes the run folder `path`, which must not exist or be empty; whole or not at all."""
    for name in spec.damages:
        if name not in DAMAGES:
            raise UsageError(f"no damage is called {name}: choose from {', '.join(DAMAGES)}")
    if spec.messages > spec.clients * (SEQ_LIMIT // 2):  # a client's share is drawn, and differs from the mean
        raise UsageError(f"{spec.clients} clients can't send {spec.messages:,} messages: use more clients")
    info = _info(spec)
    with new_folder(Path(path), "trace") as draft:
        for table in ("multicasts", "deliveries", "faults"):
            (draft / table).mkdir()
        with ExitStack() as stack:
            _Generator(spec, draft, stack).run()
        pq.write_table(FAULTS.empty_table(), draft / "faults" / "part-00000.parquet")
        (draft / RUN_FILE).write_bytes(encode_run_info(info))
    return info


def _info(spec: TraceSpec) -> RunInfo:
    groups = tuple(
        GroupInfo(g + 1, tuple(range(g * spec.replicas, (g + 1) * spec.replicas))) for g in range(spec.groups)
    )
    everyone = tuple(process for group in groups for process in group.processes)
    return RunInfo(
        run_id=spec.run_id,
        protocol="generated",
        seed=spec.seed,
        complete=True,
        groups=groups,
        correct=everyone,
        claims=spec.claims,
    )


class _Generator:
    def __init__(self, spec: TraceSpec, folder: Path, stack: ExitStack) -> None:
        self._spec = spec
        self._rng = np.random.default_rng(spec.seed)
        self._stack = stack
        self._folder = folder
        self._processes = spec.groups * spec.replicas
        self._multicasts = self._writer("multicasts/part-00000.parquet", MULTICASTS)
        self._writers: dict[int, pq.ParquetWriter] = {}
        self._next_pos = [0] * self._processes
        self._last_us = [0] * self._processes
        self._next_seq = np.zeros(spec.clients, np.int64)
        self._pace = self._rng.uniform(0.5, 2.0, spec.groups)  # swings of a group's lag, in Hz
        self._phase = self._rng.uniform(0, 2 * np.pi, spec.groups)

    def run(self) -> None:
        spec = self._spec
        starts = list(range(0, spec.messages, spec.chunk_messages))
        for start in starts:
            count = min(spec.chunk_messages, spec.messages - start)
            chunk = self._draw(start, count)
            damages = [
                name for name in spec.damages if start == (starts[-1] if name == "tail" else starts[len(starts) // 2])
            ]
            for name in damages:
                DAMAGES[name](chunk, self._rng)
            self._write_multicasts(chunk)
            for process in range(self._processes):
                self._write_deliveries(chunk, process)

    # --------------------------------------------------------------------------------------- drawing

    def _draw(self, start: int, count: int) -> Chunk:
        spec, rng = self._spec, self._rng
        sender = rng.integers(0, spec.clients, count)
        by_sender = np.argsort(sender, kind="stable")
        nth = np.arange(count) - np.searchsorted(sender[by_sender], sender[by_sender])
        seq = np.empty(count, np.int64)
        seq[by_sender] = nth + self._next_seq[sender[by_sender]]
        self._next_seq += np.bincount(sender, minlength=spec.clients)
        member = self._draw_destinations(count)
        number = np.arange(start, start + count)
        ordered_us = number * 1_000_000 // spec.rate + spec.in_flight_us + 1_000
        multicast_us = ordered_us - rng.integers(0, spec.in_flight_us + 1, count)
        client = sender + self._processes
        return Chunk(
            replicas=spec.replicas,
            msg=client << SEQ_BITS | seq,
            sender=client,
            seq=seq,
            t_us=multicast_us,
            ts=(number + 1) * _TS_STEP,
            ordered_us=ordered_us,
            member=member,
            delivered=[np.flatnonzero(member[:, process // spec.replicas]) for process in range(self._processes)],
        )

    def _draw_destinations(self, count: int) -> npt.NDArray[np.bool_]:
        """A row for each message, a column for each group."""
        spec, rng = self._spec, self._rng
        most = min(spec.destinations, spec.groups)
        member = np.zeros((count, spec.groups), np.bool_)
        weights = 1 / np.arange(1, spec.groups + 1) ** spec.skew
        first = rng.choice(spec.groups, count, p=weights / weights.sum())
        member[np.arange(count), first] = True
        if most > 1:
            sizes = np.where(rng.random(count) < 0.5, 1, rng.integers(2, most + 1, count))
            several = np.flatnonzero(sizes > 1)
            second = (first[several] + rng.integers(1, spec.groups, len(several))) % spec.groups
            member[several, second] = True
            for row in np.array_split(np.flatnonzero(sizes > 2), max(1, count // 4096)):
                keys = rng.random((len(row), spec.groups))
                keys[member[row]] = 9.0  # above all others: the two that were drawn stay
                rank = np.argsort(np.argsort(-keys, axis=1), axis=1)
                member[row] = rank < sizes[row][:, None]
        return member

    # --------------------------------------------------------------------------------------- writing

    def _write_multicasts(self, chunk: Chunk) -> None:
        order = np.argsort(chunk.t_us, kind="stable")
        order = order[chunk.member[order].any(axis=1)]  # the damage "unknown" delivers messages that nobody multicast
        sizes = chunk.member[order].sum(axis=1)
        starts = np.concatenate(([0], np.cumsum(sizes)))
        dst = (np.nonzero(chunk.member[order])[1] + 1).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(dst), type=MULTICASTS.field("dst").type)
        columns = [
            chunk.msg[order],
            chunk.sender[order],
            chunk.seq[order],
            lists,
            chunk.t_us[order],
            np.full(len(order), 64, np.int32),
        ]
        self._write(self._multicasts, columns, MULTICASTS)

    def _write_deliveries(self, chunk: Chunk, process: int) -> None:
        rows = chunk.delivered[process]
        if not len(rows):
            return
        group = process // self._spec.replicas
        pos = self._next_pos[process] + np.arange(len(rows))
        if process in chunk.gaps:
            pos[chunk.gaps[process] :] += 1
        self._next_pos[process] = int(pos[-1]) + 1
        ts = chunk.ts[rows] + chunk.forged.get(process, 0)
        if not self._spec.stamped:
            ts = pa.nulls(len(rows), pa.int64())
        columns = [
            np.full(len(rows), process, np.int32),
            np.full(len(rows), group + 1, np.int32),
            pos,
            chunk.msg[rows],
            np.full(len(rows), FINAL, np.int8),
            ts,
            self._times(chunk, process, rows),
        ]
        if process not in self._writers:
            self._writers[process] = self._writer(f"deliveries/p{process:08d}-final.parquet", DELIVERIES)
        self._write(self._writers[process], columns, DELIVERIES)

    def _times(self, chunk: Chunk, process: int, rows: Int64s) -> Int64s:
        group = process // self._spec.replicas
        ordered_us = chunk.ordered_us[rows]
        swing = np.sin(2 * np.pi * self._pace[group] * ordered_us / 1e6 + self._phase[group])
        lag_us = (self._spec.in_flight_us * (1 + swing) / 2).astype(np.int64)
        noise_us = self._rng.integers(0, 50, len(rows))
        times = np.maximum.accumulate(np.maximum(ordered_us + lag_us + noise_us, self._last_us[process]))
        self._last_us[process] = int(times[-1])
        return times

    def _writer(self, name: str, schema: pa.Schema) -> pq.ParquetWriter:
        return self._stack.enter_context(pq.ParquetWriter(self._folder / name, schema, **parquet_options(schema)))

    def _write(self, writer: pq.ParquetWriter, columns: Sequence[Any], schema: pa.Schema) -> None:
        table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema)
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
