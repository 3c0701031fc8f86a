"""What clients of a cluster wrote down of what they did with objects (`net/client/history.py`), as a table of the run.

Whatever a client did that wrote nothing down might explain an answer: `Histories.unrecorded` counts such operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ...apps.store import HISTORY_SUFFIX, Meaning
from ...core import MessageId, UsageError
from ...trace.operations import OperationRows, Operations


class Histories:
    """All files in a folder, as rows."""

    def __init__(self, folder: Path, epoch_us: int) -> None:
        self._rows = OperationRows()
        self._epoch_us = epoch_us
        self._calls: dict[MessageId, list[Any]] = {}  # client, time, time of the answer or None, meaning, result
        self._refused: set[MessageId] = set()
        self._reads: list[list[Any]] = []
        for path in sorted(folder.glob(f"*{HISTORY_SUFFIX}")) if folder.is_dir() else ():
            self._take(path)
        self._make_rows()

    def _take(self, path: Path) -> None:
        *lines, _ = path.read_bytes().split(b"\n")  # what follows the last line feed is torn
        for line in lines:
            try:
                match msgspec.json.decode(line, type=list[Any]):
                    case ["call", int(message), int(client), int(t_us), *meaning]:
                        self._calls[message] = [client, t_us, None, _meaning(*meaning), None]
                    case ["answer", int(message), int(t_us), result] if message in self._calls:
                        self._calls[message][2], self._calls[message][4] = t_us, _text(result)
                    case ["refused", int(message)]:
                        self._refused.add(message)
                    case ["read", int(client), int(since_us), int(t_us), *meaning, result]:
                        self._reads.append([client, since_us, t_us, _meaning(*meaning), _text(result)])
                    case _:
                        raise ValueError("no word of a client")
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, TypeError) as error:
                raise UsageError(f"{path} is damaged: a line of it makes no sense ({error})") from error

    def _make_rows(self) -> None:
        calls = [call for message, call in self._calls.items() if message not in self._refused]
        for client, since_us, t_us, meaning, result in sorted([*calls, *self._reads], key=lambda row: row[1]):
            returned = None if t_us is None else max(t_us, since_us) - self._epoch_us  # clocks may be set back
            what, arguments, objects = meaning
            self._rows.add(client, since_us - self._epoch_us, returned, what, arguments, result, objects)

    def columns(self) -> Operations:
        return self._rows.columns()

    @property
    def is_empty(self) -> bool:
        return not self._calls and not self._reads

    def unrecorded(self, multicast: Iterable[MessageId]) -> int:
        """How many of these messages no client wrote down."""
        return sum(message not in self._calls for message in multicast)


def _meaning(operation: str, arguments: str, objects: list[str]) -> Meaning:
    return msgspec.convert((operation, arguments, objects), Meaning)


def _text(result: Any) -> str | None:
    if result is not None and not isinstance(result, str):
        raise ValueError("a result is a text of JSON")
    return result
