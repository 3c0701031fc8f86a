"""Small files that a node can't do without: read and written whole, with a checksum, and readable for people.

amcast identity 1 9f3c01aa
{"cluster": "shop", ...}
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from ..system import system
from .files import CorruptLogError, write_file

FORMAT = 1

Content = TypeVar("Content")


def pack_checked(kind: str, content: object) -> bytes:
    body = msgspec.json.encode(content) + b"\n"
    return _head(kind, body) + body


def write_checked(path: Path, kind: str, content: object) -> None:
    write_file(path, pack_checked(kind, content))


def read_checked(path: Path, kind: str, type_: type[Content]) -> Content:
    """A file that is missing or damaged is an error: nothing follows from its absence."""
    if not system().exists(path):
        raise CorruptLogError(path, "is missing")
    head, _, body = system().read_file(path).partition(b"\n")
    words = head.split()
    if words[:2] == [b"amcast", kind.encode()] and len(words) == 4 and words[2] != str(FORMAT).encode():
        version = words[2].decode(errors="replace")
        raise CorruptLogError(path, f"is damaged or of format version {version}, and this program reads {FORMAT}")
    if head + b"\n" + body != _head(kind, body) + body:
        raise CorruptLogError(path, "is damaged")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.DecodeError as error:
        raise CorruptLogError(path, f"can't be decoded ({error})") from error


def _head(kind: str, body: bytes) -> bytes:
    return f"amcast {kind} {FORMAT} {crc32(body):08x}\n".encode()
