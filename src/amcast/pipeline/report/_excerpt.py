"""The rows of a run that a violation is about, for its space-time diagram; the run itself may be too large to load."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...check import Violation
from ...trace import Recorder, Run, read_run
from ...trace.schema import TABLES
from ..files import RunFiles

WHOLE_ROWS_MAX = 2_000_000
_ROWS_MAX = 100_000  # of each table


def run_around(run: RunFiles, violation: Violation) -> Run:
    """The whole run if it is small, else the rows about the violation's messages."""
    if violation.operations:
        return Recorder().run(run.info)  # all that is drawn is in the violation
    is_here = "://" not in run.path
    if is_here and run.rows("deliveries") + run.rows("wire") <= WHOLE_ROWS_MAX:
        return read_run(run.path)
    return excerpt(run, violation)


def excerpt(run: RunFiles, violation: Violation) -> Run:
    """A run of the rows about the violation's messages, and all faults."""
    recorder = Recorder()
    for row in _rows(run, "multicasts", violation):
        recorder.multicast(row["msg"], row["sender"], row["client_seq"], tuple(row["dst"]), row["t_us"], row["bytes"])
    for row in _rows(run, "deliveries", violation):
        recorder.delivery(row["process"], row["grp"], row["pos"], row["msg"], row["kind"], row["ts"], row["t_us"])
    for row in _rows(run, "wire", violation):
        recorder.wire(row["src"], row["dst"], row["kind"], row["msg"], row["bytes"], row["sent_us"], row["received_us"])
    for row in _rows(run, "faults", None):
        recorder.fault(row["process"], row["t_us"], row["what"], row["detail"])
    return recorder.run(run.info)


def _rows(run: RunFiles, name: str, violation: Violation | None) -> list[dict[str, Any]]:
    files = [file.path for file in run.table(name)]
    if not files:
        return []
    about = None if violation is None else [("msg", "in", violation.messages)]
    names = TABLES[name].names
    parts = [pq.read_table(file, filters=about, columns=names, page_checksum_verification=True) for file in files]
    rows: list[dict[str, Any]] = pa.concat_tables(parts).slice(0, _ROWS_MAX).to_pylist()
    return rows
