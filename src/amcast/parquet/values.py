"""The values of a column in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

MISSING = -1

INTEGERS = {name: np.dtype(name) for name in ("int8", "int16", "int32", "int64")}


@dataclass(frozen=True, slots=True)
class Integers:
    """`values` has something where a value is missing; `present` is None if none is."""

    values: npt.NDArray[Any]
    present: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Floats:
    """As `Integers`, for columns of doubles. They are only written: no table of a run has any."""

    values: npt.NDArray[np.float64]
    present: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Texts:
    """Each text is kept once."""

    codes: Int32s  # indices into words; if the column is nullable, MISSING where there is no text
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Lists:
    start: Int64s  # the list of row i is values[start[i]:start[i + 1]]
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.start) - 1


@dataclass(frozen=True, slots=True)
class TextLists:
    """As `Lists`, of texts; each text is kept once."""

    start: Int64s
    codes: Int32s  # indices into words
    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start) - 1


Values = Integers | Floats | Texts | Lists | TextLists
