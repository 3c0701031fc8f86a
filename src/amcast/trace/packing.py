"""The binary layout of rows before they become columns: one dtype a table, which `packer` writes and numpy reads.

A file of one process's deliveries names the process once, in front; its rows are `PROCESS_DELIVERY`, without the name.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np

MULTICAST = np.dtype([("msg", "<i8"), ("sender", "<i8"), ("seq", "<i8"), ("t_us", "<i8"), ("bytes", "<i4")])
PROCESS_DELIVERY = np.dtype([("pos", "<i8"), ("msg", "<i8"), ("kind", "i1"), ("ts", "<i8"), ("t_us", "<i8")])
DELIVERY = np.dtype([("process", "<i4"), ("grp", "<i4"), *PROCESS_DELIVERY.descr])
WIRE = np.dtype(
    [
        ("src", "<i8"),
        ("dst", "<i8"),
        ("kind", "<i4"),
        ("msg", "<i8"),
        ("bytes", "<i4"),
        ("sent_us", "<i8"),
        ("received_us", "<i8"),
    ]
)

_CODES = {1: "b", 4: "i", 8: "q"}


def packer(row: np.dtype[Any]) -> Callable[..., bytes]:
    """A function that packs one row, its fields in order. Neither "<" nor numpy pads: both have the same bytes."""
    assert row.names is not None
    return Struct("<" + "".join(_CODES[row[name].itemsize] for name in row.names)).pack
