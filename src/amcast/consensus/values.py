"""Values: batches of entries, as logs order them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core import encode


def cut_into_values(entries: list[Any], bytes_max: int) -> list[bytes]:
    """As few values as the limit allows: links and disks take many of a moderate size better than a huge one."""
    value = encode(entries)
    if len(value) <= bytes_max or len(entries) == 1:
        return [value]
    parts: list[list[msgspec.Raw]] = []
    size = bytes_max
    for entry in entries:
        data = msgspec.Raw(encode(entry))
        size += len(data)
        if size > bytes_max:
            parts.append([])
            size = len(data)
        parts[-1].append(data)
    return [encode(part) for part in parts]
