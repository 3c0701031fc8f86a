"""Imports files that fit into memory: some million rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core import UsageError
from ...trace import NULL, Answers, Deliveries, Fault, Multicasts, Tables, WireRows, limits
from ...trace.names import NamesTable
from ...trace.schema import MULTICASTS, UNKNOWN
from ...trace.whole import refuse_occupied
from ...trace.writer import write_run
from .._arrow import arrow_schema
from ..operations import operations_in
from .found import Found
from .numbers import RowNumberer, names_table
from .parts import parts_of
from .problems import Problems
from .reading import PartReader, placed
from .settle import Declared, Imported, Settled, has_multicasts, has_positions, settle
from .sources import Source
from .values import NAMED

BYTES_MAX = 4 << 30


def import_in_memory(
    sources: Sequence[Source], declared: Declared, out: Path, progress: Callable[[int], None] | None = None
) -> Imported:
    """Writes the run folder `out`, whole or not at all. `progress` is told of bytes that were read."""
    refuse_occupied(out, "run")
    if sum(source.size for source in sources) > BYTES_MAX:
        raise UsageError(f"the files have more than {BYTES_MAX:,} bytes, too many for memory: use --engine spark")
    named, found, ignored = _read(sources, progress)
    settled = settle(found, declared, sources, out, ignored)
    tables, names = _number(named, settled, sources)
    write_run(out, settled.info, _in_memory(tables), names)
    return Imported(str(out), settled.info, {name: len(table) for name, table in tables.items()}, settled.words)


def _read(
    sources: Sequence[Source], progress: Callable[[int], None] | None
) -> tuple[dict[str, pa.Table], Found, set[str]]:
    problems, found, ignored = Problems(), Found(), set[str]()
    blocks: dict[str, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in NAMED.items()}
    for source in sources:
        (part,) = parts_of(source, source.size + 1)
        reader = PartReader(part, progress)
        for rows in reader:
            blocks[source.table].append(rows)
            if sum(found.rows.values()) + sum(reader.found.rows.values()) > limits.ROWS_MAX:
                raise UsageError(
                    f"there are more than {limits.ROWS_MAX:,} rows, too many for memory: use --engine spark"
                )
        found.join(reader.found)
        ignored |= reader.ignored
        for problem in reader.problems.kept:
            problems.add(placed(problem, source, source.line))
        problems.more += reader.problems.more
    problems.refuse()
    return {name: pa.concat_tables(parts) for name, parts in blocks.items()}, found, ignored


def _number(
    named: dict[str, pa.Table], settled: Settled, sources: Sequence[Source]
) -> tuple[dict[str, pa.Table], dict[str, NamesTable]]:
    names: dict[str, NamesTable] = {}
    numbering = settled.numbering
    messages = None if numbering.messages_are_numbers else _message_names(named)
    if messages is not None:
        names["messages"] = NamesTable(np.arange(len(messages)), messages.to_pylist())
    if numbering.clients and not numbering.are_own:
        names["clients"] = names_table(numbering.clients)
    numberer = RowNumberer(numbering, settled.groups)
    tables: dict[str, pa.Table] = {}
    for name, rows in named.items():
        if "msg" in rows.column_names:
            rows = _with_message_numbers(rows, messages)
        tables[name] = numberer.number(name, rows)
    if not has_positions(sources):
        tables["deliveries"] = _with_positions(tables["deliveries"])
    if not has_multicasts(sources):
        tables["multicasts"] = _inferred_multicasts(tables["deliveries"])
    return tables, names


def _message_names(named: dict[str, pa.Table]) -> pa.Array:
    """All of them, sorted: the number of a message is its place."""
    columns = [rows.column("msg") for rows in named.values() if "msg" in rows.column_names]
    distinct = pc.drop_null(pc.unique(pa.chunked_array([chunk for column in columns for chunk in column.chunks])))
    return distinct.take(pc.sort_indices(distinct))


def _with_message_numbers(rows: pa.Table, names: pa.Array | None) -> pa.Table:
    msg = rows.column("msg")
    numbers = (msg if names is None else pc.index_in(msg, names)).cast(pa.int64())
    return rows.set_column(rows.column_names.index("msg"), "msg", numbers)


def _with_positions(deliveries: pa.Table) -> pa.Table:
    """The order of the rows of each process and kind."""
    owner = (deliveries.column("process").to_numpy().astype(np.int64) << 8) + deliveries.column("kind").to_numpy()
    order = np.argsort(owner, kind="stable")
    pos = np.empty(len(owner), np.int64)
    pos[order] = np.arange(len(owner)) - np.searchsorted(owner[order], owner[order])
    return deliveries.set_column(deliveries.column_names.index("pos"), "pos", pa.array(pos))


def _inferred_multicasts(deliveries: pa.Table) -> pa.Table:
    """To the groups that delivered it, at the time of its first delivery. Who sent it nobody knows."""
    groups = (
        deliveries.group_by(["msg", "grp"])
        .aggregate([("t_us", "min")])
        .sort_by([("msg", "ascending"), ("grp", "ascending")])
    )
    msg = groups.column("msg").to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], msg[1:] != msg[:-1]))) if len(msg) else np.arange(0)
    times = np.minimum.reduceat(groups.column("t_us_min").to_numpy(), starts) if len(msg) else np.arange(0)
    bounds = pa.array(np.concatenate((starts, [len(msg)])), pa.int32())
    schema = arrow_schema(MULTICASTS)
    dst = pa.ListArray.from_arrays(bounds, groups.column("grp").combine_chunks(), type=schema.field("dst").type)
    unknown = np.full(len(starts), UNKNOWN)
    columns = [msg[starts], unknown, unknown, dst, times, np.zeros(len(starts), np.int32)]
    return pa.Table.from_arrays([pa.array(column) for column in columns], schema=schema)


# ------------------------------------------------------------------------------------- from Arrow to numpy


def _in_memory(tables: dict[str, pa.Table]) -> Tables:
    """The tables as `write_run` takes them."""
    multicasts, wire = tables["multicasts"], tables["wire"]
    dst = multicasts.column("dst").combine_chunks()
    kinds = wire.column("kind").combine_chunks().dictionary_encode()
    faults = tables["faults"].to_pylist()
    return Tables(
        Multicasts(
            **_numbers(multicasts.drop_columns("dst")),
            dst_start=np.concatenate(([0], np.cumsum(pc.list_value_length(dst).to_numpy(), dtype=np.int64))),
            dst=pc.list_flatten(dst).to_numpy(),
        ),
        Deliveries(**_numbers(tables["deliveries"])),
        WireRows(
            **_numbers(wire.drop_columns("kind")),
            kind=kinds.indices.to_numpy(),
            kinds=tuple(kinds.dictionary.to_pylist()),
        ),
        [Fault(**fault) for fault in faults],
        Answers(**_numbers(tables["answers"])),
        operations_in(tables["operations"]),
    )


def _numbers(table: pa.Table) -> dict[str, npt.NDArray[Any]]:
    columns = {name: table.column(name) for name in table.column_names}
    return {
        name: (column.fill_null(NULL) if column.null_count else column).to_numpy() for name, column in columns.items()
    }
