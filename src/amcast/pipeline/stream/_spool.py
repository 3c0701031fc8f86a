"""Batches that come by way of a folder.

With Spark Connect, the function that takes a batch runs beside the server, not here, where the verifier is. So it does
nothing but write the batch down; the watch reads it and removes it once it is committed. A batch that Spark repeats is
written again, the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

_DONE = "_SUCCESS"  # Spark writes it last


def writer_of(folder: Path) -> Callable[[DataFrame, int], None]:
    place = str(folder.resolve())

    # The server knows nothing of this module: a function inside a function travels as a whole.
    def write(frame: DataFrame, batch: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(f"{place}/{batch}")

    return write


def handed_batches(folder: Path) -> Iterator[tuple[int, pa.Table]]:
    """Those that are whole, in order; each is gone when the next one is asked for."""
    found = [part for part in folder.glob("[0-9]*") if (part / _DONE).exists()]
    for part in sorted(found, key=lambda part: int(part.name)):
        yield int(part.name), pq.read_table(part, page_checksum_verification=True)
        shutil.rmtree(part)
