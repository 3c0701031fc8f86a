"""How the columns of a run are stored."""

from __future__ import annotations

from ..parquet.column import Encoding

# Columns whose neighbouring values are close are stored as differences, those with few values as dictionaries.
_DIFFERENCES = ("pos", "ts", "t_us", "client_seq", "sent_us", "received_us", "invoked_us", "returned_us")
_DICTIONARIES = ("process", "grp", "kind", "sender", "src", "dst", "what", "detail", "bytes", "client", "operation")
ENCODINGS = dict.fromkeys(_DIFFERENCES, Encoding.DIFFERENCES) | dict.fromkeys(_DICTIONARIES, Encoding.DICTIONARY)
