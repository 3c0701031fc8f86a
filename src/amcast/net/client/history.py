"""What a client of a cluster did with objects, and was answered, as it writes it down itself.

Each client has a file of its own: a line of JSON when it calls, before the call leaves, and one when it is answered.
So a client that is killed leaves a call without an answer, as one that gave up does.

    ["call", message, client, time, operation, arguments, objects]
    ["answer", message, time, result]      the result is a text of JSON, or null if it was not told
    ["refused", message]                   it certainly had no effect
    ["read", client, time, time, operation, arguments, objects, result]      of no message

`net/trace/_histories.py` makes the table `operations` of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...apps.store import HISTORY_SUFFIX, Meaning, meaning_of, result_in
from ...core import AppMessage, MessageId, ProcessId
from ..system import system
from ..wire.control import Result


class HistoryWriter:
    """One client's file. Nothing is buffered: what was written survives the death of the program."""

    def __init__(self, folder: Path) -> None:
        system().mkdir(folder)
        path = folder / f"{system().random_bits(64):016x}{HISTORY_SUFFIX}"
        self._file = system().open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def called(self, message: MessageId, client: ProcessId, meaning: Meaning) -> None:
        self._write(("call", message, client, system().wall_us(), *meaning))

    def answered(self, message: MessageId, result: str | None) -> None:
        self._write(("answer", message, system().wall_us(), result))

    def refused(self, message: MessageId) -> None:
        self._write(("refused", message))

    def read(self, client: ProcessId, since_us: int, meaning: Meaning, result: str | None) -> None:
        self._write(("read", client, since_us, system().wall_us(), *meaning, result))

    def _write(self, line: Sequence[Any]) -> None:
        data = msgspec.json.encode(line) + b"\n"
        written = system().write(self._file, data)
        while written < len(data):
            written += system().write(self._file, data[written:])

    def close(self) -> None:
        if self._file >= 0:
            system().close(self._file)
            self._file = -1


class LoadHistory:
    """Of a client that makes load: it hears that an operation is done, and its result, in any order.

    An operation that is done and of which no result came, say since the leader that had it crashed, is left without an
    answer: that says less than is known, and nothing wrong.
    """

    def __init__(self, folder: Path) -> None:
        self._writer = HistoryWriter(folder)
        self._open: dict[MessageId, Meaning] = {}
        self._done: set[MessageId] = set()
        self._results: dict[MessageId, Result] = {}

    def called(self, messages: Sequence[AppMessage]) -> None:
        for message in messages:
            meaning = meaning_of(message.payload)
            if meaning is not None:
                self._open[message.id] = meaning
                self._writer.called(message.id, message.sender, meaning)

    def done(self, messages: Sequence[AppMessage]) -> None:
        for message in messages:
            if message.id in self._open:
                self._done.add(message.id)
                self._answer(message.id)

    def told(
        self, sender: ProcessId, group: int, ids: Sequence[MessageId], results: Sequence[Result], problem: str
    ) -> None:
        for id_, result in zip(ids, results, strict=False):
            if id_ in self._open and not problem:
                self._results.setdefault(id_, result)
                self._answer(id_)

    def _answer(self, id_: MessageId) -> None:
        if id_ not in self._done or id_ not in self._results:
            return
        self._done.discard(id_)
        result, meaning = self._results.pop(id_), self._open.pop(id_)
        told = result_in(result, meaning) if isinstance(result, bytes) else None
        if told is not None:
            self._writer.answered(id_, told)
        elif result is not None:
            self._writer.refused(id_)

    def close(self) -> None:
        self._writer.close()
