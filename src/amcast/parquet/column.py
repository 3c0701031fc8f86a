"""What a column of a table is called, what it holds, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

TEXT = "string"
DOUBLE = "double"


class Encoding(Enum):
    """How a column is stored: neighbouring values are close, or there are few values, or neither."""

    PLAIN = "plain"
    DIFFERENCES = "differences"
    DICTIONARY = "dictionary"


@dataclass(frozen=True, slots=True)
class Column:
    """Types have the names that Arrow has for them. This package reads and writes `INTEGERS` and `TEXT`, and
    lists of both, and writes `DOUBLE`."""

    name: str
    type: str  # of the elements, if it is a column of lists
    nullable: bool = False
    is_list: bool = False

    def __str__(self) -> str:
        return f"list<element: {self.type}>" if self.is_list else self.type
