"""What the pipeline knows of a run before it reads its rows: where its files are and what their footers say.

It travels to tasks as one JSON string a run.
"""

from __future__ import annotations

import msgspec

from ..trace.schema import RunInfo

# For Spark's own reader, which does not look at the checksums of pages unless it is told to.
READ_OPTIONS = {"parquet.page.verify-checksum.enabled": "true"}


class FileInfo(msgspec.Struct, frozen=True):
    path: str
    rows: int
    process: int | None = None  # of a deliveries file that holds rows of one log only
    kind: int | None = None
    first_pos: int = 0


class RunFiles(msgspec.Struct, frozen=True):
    path: str
    info: RunInfo
    tables: dict[str, list[FileInfo]]
    name: str | None = None  # where two runs of one check have the same id, the later one is called by this

    @property
    def run_id(self) -> str:
        return self.name or self.info.run_id

    def table(self, name: str) -> list[FileInfo]:
        """Its files, without those that are empty."""
        return [file for file in self.tables.get(name, []) if file.rows]

    def rows(self, name: str) -> int:
        return sum(file.rows for file in self.tables.get(name, []))

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def decode_files(text: str) -> RunFiles:
    return msgspec.json.decode(text, type=RunFiles)
