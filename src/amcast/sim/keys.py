"""Signatures in the simulator: as good as real ones, and nearly free.

A machine signs for its own process alone, and no process gets to see a key: so nobody can forge, by construction.
"""

from __future__ import annotations

from hashlib import blake2b

from ..core import ProcessId

_PROOF_BYTES = 16


class Keys:
    """The keys of all processes and clients of a run."""

    def sign(self, process: ProcessId, data: bytes) -> bytes:
        return blake2b(data, digest_size=_PROOF_BYTES, key=b"%d" % process).digest()

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        return self.sign(process, data) == proof
