"""Batches that get from Spark to the watch through a folder, since with Spark Connect they can't be passed directly.

The function that Spark calls with each batch then runs on the server's machine, not in the process of the watch. It
only writes the batch into the folder; the watch reads it from there, and removes it once it is committed. If Spark
repeats a batch, it is written again with the same content.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

_DONE = "_SUCCESS"  # Spark writes it last


def spool_writer(folder: Path) -> Callable[[DataFrame, int], None]:
    place = str(folder.resolve())

    # The server can't import this module. An inner function is pickled as a whole; one of the module only by its name.
    def write(frame: DataFrame, batch: int) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(f"{place}/{batch}")

    return write


def spooled_batches(folder: Path) -> Iterator[tuple[int, pa.Table]]:
    """Batches that are written to their end, in order. Each is removed when the next one is asked for."""
    found = [part for part in folder.glob("[0-9]*") if (part / _DONE).exists()]
    for part in sorted(found, key=lambda part: int(part.name)):
        yield int(part.name), pq.read_table(part, page_checksum_verification=True)
        shutil.rmtree(part)
