"""The values of a column in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

INTEGERS = {name: np.dtype(name) for name in ("int8", "int16", "int32", "int64")}


@dataclass(frozen=True, slots=True)
class Integers:
    """`values` has something where a value is missing; `present` is None if none is."""

    values: npt.NDArray[Any]
    present: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def filled(self, null: int) -> npt.NDArray[Any]:
        return (
            self.values if self.present is None else np.where(self.present, self.values, self.values.dtype.type(null))
        )


@dataclass(frozen=True, slots=True)
class Texts:
    """Each text is kept once. A missing one has the code -1."""

    codes: Int32s  # indices into words
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def size(self) -> int:
        """The bytes of all texts, if each had its own copy."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.words))
        return sum(int(count) * len(word.encode()) for count, word in zip(counts, self.words, strict=True))


@dataclass(frozen=True, slots=True)
class Lists:
    start: Int64s  # the list of row i is values[start[i]:start[i + 1]]
    values: npt.NDArray[Any]
    nulls: int = 0  # rows without a list; if there are none, elements without a value

    def __len__(self) -> int:
        return len(self.start) - 1


Values = Integers | Texts | Lists


def nulls_in(values: Values) -> int:
    match values:
        case Integers(present=present):
            return 0 if present is None else int(len(present) - np.count_nonzero(present))
        case Texts(codes=codes):
            return int(np.count_nonzero(codes < 0))
        case Lists(nulls=nulls):
            return nulls
