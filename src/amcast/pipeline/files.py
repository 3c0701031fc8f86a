"""The files of a run and what their footers say: all that the pipeline knows of a run before it reads rows.

Tasks get it as one JSON string for each run.
"""

from __future__ import annotations

from functools import partial

import msgspec
from pyarrow import fs

from ..trace.names import NAMES_FOLDER, Names, Open, names_in
from ..trace.schema import RunInfo

# Spark's Parquet reader does not verify the checksums of pages unless it is told to.
READ_OPTIONS = {"parquet.page.verify-checksum.enabled": "true"}


class FileInfo(msgspec.Struct, frozen=True):
    path: str
    rows: int
    process: int | None = None  # these three: of a file of deliveries of one process and one kind
    kind: int | None = None
    first_pos: int = 0


class RunFiles(msgspec.Struct, frozen=True):
    path: str
    info: RunInfo
    tables: dict[str, list[FileInfo]]
    name: str | None = None  # instead of its run_id, where an earlier run of the same check has that id

    @property
    def run_id(self) -> str:
        return self.name or self.info.run_id

    def table(self, name: str) -> list[FileInfo]:
        """The files of a table that have rows."""
        return [file for file in self.tables.get(name, []) if file.rows]

    def rows(self, name: str) -> int:
        return sum(file.rows for file in self.tables.get(name, []))

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def filesystem_of(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri and not uri.startswith("file:"):
        return fs.LocalFileSystem(), uri
    filesystem, path = fs.FileSystem.from_uri(uri)
    return filesystem, path


def names_of(files: RunFiles) -> Names:
    return Names(files.info, names_in(partial(_opened, files.path)))


def _opened(uri: str, table: str) -> list[Open]:
    filesystem, path = filesystem_of(uri)
    entries = filesystem.get_file_info(fs.FileSelector(f"{path}/{NAMES_FOLDER}/{table}"))
    return [partial(filesystem.open_input_file, name) for name in sorted(entry.path for entry in entries)]


def decode_files(text: str) -> RunFiles:
    return msgspec.json.decode(text, type=RunFiles)
