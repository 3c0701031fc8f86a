"""Local order: no process delivers a message optimistically after it has delivered it for good."""

from __future__ import annotations

import numpy as np

from ...check.report import Findings
from ...trace.schema import FINAL
from ._layout import Layout
from ._read import Int64s, numbers, read_columns


def check_local_order(layout: Layout, findings: Findings) -> None:
    if "local-order" not in layout.info.claims:
        return
    findings.begin("local-order")
    process, kind, msg, t_us = _read(layout)
    is_final = kind == FINAL
    for each in np.unique(process[~is_final]).tolist():
        final, guessed = (np.flatnonzero((process == each) & (is_final == which)) for which in (True, False))
        by_msg = final[np.argsort(msg[final], kind="stable")]
        at = np.minimum(np.searchsorted(msg[by_msg], msg[guessed]), max(0, len(by_msg) - 1))
        if not len(by_msg):
            continue
        late = (msg[by_msg[at]] == msg[guessed]) & (t_us[guessed] > t_us[by_msg[at]])
        for row in np.flatnonzero(late).tolist():
            _report(layout, each, int(msg[guessed[row]]), int(t_us[guessed[row]]), int(t_us[by_msg[at[row]]]), findings)


def _read(layout: Layout) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    names = ("process", "kind", "msg", "t_us")
    parts: list[list[Int64s]] = [[np.empty(0, np.int64)] for _ in names]
    for file in layout.files.table("deliveries"):
        table = read_columns(file.path, names)
        for column, name in zip(parts, names, strict=True):
            column.append(numbers(table, name, file.path).astype(np.int64))
    process, kind, msg, t_us = (np.concatenate(column) for column in parts)
    return process, kind, msg, t_us


def _report(layout: Layout, process: int, msg: int, guessed_us: int, final_us: int, findings: Findings) -> None:
    if not findings.is_full("local-order"):
        name = layout.message(int(np.flatnonzero(layout.ids == msg)[0]))
        done = f"{layout.name(process)} delivered {name} optimistically at {guessed_us} us"
        findings.fail("local-order", [msg], [process], f"{done}, after its final delivery at {final_us} us")
