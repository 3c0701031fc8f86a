"""How rows are packed before they are columns: one dtype a table, which numpy reads and a struct of it packs.

Rows of a log leave out whose log it is: where that is written once, in front of them, nobody repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

MULTICAST = np.dtype([("msg", "<i8"), ("sender", "<i4"), ("seq", "<i8"), ("t_us", "<i8"), ("bytes", "<i4")])
LOG_ROW = np.dtype([("pos", "<i8"), ("msg", "<i8"), ("kind", "i1"), ("ts", "<i8"), ("t_us", "<i8")])
DELIVERY = np.dtype([("process", "<i4"), ("grp", "<i4"), *LOG_ROW.descr])
WIRE = np.dtype(
    [
        ("src", "<i4"),
        ("dst", "<i4"),
        ("kind", "<i4"),
        ("msg", "<i8"),
        ("bytes", "<i4"),
        ("sent_us", "<i8"),
        ("received_us", "<i8"),
    ]
)

_CODES = {1: "b", 4: "i", 8: "q"}


def packer(row: np.dtype[Any]) -> Callable[..., bytes]:
    """Packs one row, its fields in order; numpy aligns nothing unless asked, and neither does "<"."""
    assert row.names is not None
    return Struct("<" + "".join(_CODES[row[name].itemsize] for name in row.names)).pack
