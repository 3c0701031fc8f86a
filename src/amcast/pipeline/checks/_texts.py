"""Texts as 64 bits each that nobody can foresee without the key: equal texts have equal ones.

Short texts are hashed by numpy, many at once. Different ones have different hashes but for a chance of 2 ** -64 for
each pair, as in the other proofs.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UInt64s = npt.NDArray[np.uint64]

_SHORT = 24  # bytes, a multiple of 8
_ODD = np.uint64(0x9E3779B97F4A7C15)


def hash_texts(texts: pa.Array, key: int) -> UInt64s:
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    found = np.empty(len(texts), np.uint64)
    short = lengths <= _SHORT
    if short.all():
        found[:] = _hash_short(texts, lengths, key)
        return found
    found[short] = _hash_short(texts.filter(pa.array(short)), lengths[short], key)
    secret = key.to_bytes(16, "little")
    long = texts.filter(pa.array(~short)).to_pylist()
    hashes = [int.from_bytes(blake2b(text.encode(), key=secret, digest_size=8).digest(), "little") for text in long]
    found[~short] = np.array(hashes, np.uint64)
    return found


def _hash_short(texts: pa.Array, lengths: npt.NDArray[np.int32], key: int) -> UInt64s:
    padded = pc.binary_join_element_wise(texts.cast(pa.binary()), b"\0" * _SHORT, b"")
    cut = pc.binary_slice(padded, 0, _SHORT).cast(pa.binary(_SHORT)) if len(texts) else pa.array([], pa.binary(_SHORT))
    data = cut.buffers()[1]
    words = (
        np.frombuffer(data, np.uint64, len(texts) * _SHORT // 8, cut.offset * _SHORT)
        if len(texts)
        else np.empty(0, np.uint64)
    )
    mixed = mix(lengths.astype(np.uint64), key)
    for word in words.reshape(-1, _SHORT // 8).T:
        mixed = mix(mixed ^ word, key)
    return mixed


def mix(numbers: UInt64s, key: int) -> UInt64s:
    """One to one, for each key in another way."""
    mixed = numbers + np.uint64(key & 0xFFFFFFFFFFFFFFFF)
    for shift in (30, 27):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= _ODD ^ np.uint64(key >> 64 & 0xFFFFFFFFFFFFFFFE)
    mixed ^= mixed >> np.uint64(31)
    return mixed
