"""Signatures, in clusters whose members and clients may lie: Ed25519, over the cluster's id and what is said.

A process has one key. The private half is a file that its own node alone reads; the public halves of all processes are
in `cluster.toml`, which everybody has.

A client draws a key for each of its sender ids, and the id follows from the key:

    id       = a slow hash of the public key, cut to the 37 bits of a client's id
    proof    = public key, signature                      of a message
    ticket   = public key, signature                      of "this id is mine", for one process

So nobody gives out ids, and nobody has to be believed about whose an id is. The hash is slow because 37 bits are few:
to speak for a client, a liar must find another key with the same id, which takes years of CPU time, and must do so
before the client leaves. Two clients may draw the same id by chance: in a cluster that has seen a million, a new
one does so once in a hundred thousand times. A group then takes messages of the first alone
(`protocols/_byzantine.py`): the second gets no answers, and the next client draws again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...core import ProcessId, UsageError
from ...core.ids import CLIENT_ID_LIMIT, PROCESS_ID_LIMIT
from ..config import ClusterConfig
from ..system import system
from ._files import SECRET, Draft, read_file, write_all

KEY_BYTES = 32
_SAID, _TICKET = b"amcast said\0", b"amcast ticket\0"  # what is signed for one purpose is of no use for the other
_SLOW = 256  # rounds of scrypt: half a millisecond, and 256 KB of memory


class Signer:
    """Signs for one process, or for one id of a client."""

    def __init__(self, cluster_id: str, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._said = _prefix(_SAID, cluster_id)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(self._said + data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ClientSigner(Signer):
    def __init__(self, cluster_id: str, key: Ed25519PrivateKey | None = None) -> None:
        if key is None:
            key = Ed25519PrivateKey.from_private_bytes(system().random_bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big"))
        super().__init__(cluster_id, key)
        self._public = key.public_key().public_bytes_raw()
        self._ticket = _prefix(_TICKET, cluster_id)
        self.id = client_id_of(self._public)

    def sign(self, data: bytes) -> bytes:
        return self._public + super().sign(data)

    def ticket(self, process: str, name: str) -> bytes:
        """Proves the id to this process alone: whoever gets it can't use it elsewhere."""
        return self._public + self._key.sign(self._ticket + _ticket_part(process, name, self.id))


class Verifier:
    """Knows the keys of all processes of a cluster."""

    def __init__(self, cluster_id: str, processes: Mapping[ProcessId, bytes]) -> None:
        self._processes = {id_: Ed25519PublicKey.from_public_bytes(key) for id_, key in processes.items()}
        self._said = _prefix(_SAID, cluster_id)

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        if process >= PROCESS_ID_LIMIT:
            return _is_of_client(process, self._said + data, proof)
        key = self._processes.get(process)
        return key is not None and _is_signed(key, self._said + data, proof)


class SignedTickets:
    """Checks the tickets that clients sign for this process. There is nothing to issue, and they do not end."""

    life_s = 0

    def __init__(self, cluster_id: str, process: str) -> None:
        self._process = process
        self._ticket = _prefix(_TICKET, cluster_id)

    def issue(self, client_id: ProcessId, name: str) -> bytes:
        return b""

    def problem_with(self, client_id: ProcessId, name: str, ticket: bytes) -> str | None:
        signed = self._ticket + _ticket_part(self._process, name, client_id)
        is_good = PROCESS_ID_LIMIT <= client_id < CLIENT_ID_LIMIT and _is_of_client(client_id, signed, ticket)
        return None if is_good else "the ticket does not prove this client id"


def client_id_of(public: bytes) -> ProcessId:
    number = int.from_bytes(_slow_hash(public), "big")
    return PROCESS_ID_LIMIT + number % (CLIENT_ID_LIMIT - PROCESS_ID_LIMIT)


def load_signer(config: ClusterConfig, name: str) -> Signer:
    """Of a process. Its file must hold the private half of the key that cluster.toml has."""
    path = key_file(config, name)
    key = _parse_private(read_file(path, f"the signing key of {name}", f"make it with `amcast keys {name}`"), path)
    if key.public_key().public_bytes_raw() != public_key_of(config, name):
        raise UsageError(
            f"{path} is not the key that cluster.toml has for {name}: `amcast keys {name}` prints its line"
        )
    return Signer(config.id, key)


def verifier_of(config: ClusterConfig) -> Verifier:
    return Verifier(config.id, {id_: public_key_of(config, name) for name, id_ in config.ids().items()})


def public_key_of(config: ClusterConfig, name: str) -> bytes:
    return bytes.fromhex(config.process_named(name).key)


def public_half(private: bytes) -> str:
    """As cluster.toml has it."""
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def make_key(config: ClusterConfig, name: str) -> str:
    """Makes the private key of a process if there is none. Returns the public one, as cluster.toml has it."""
    path = key_file(config, name)
    if not path.exists():
        write_all([Draft(path, Ed25519PrivateKey.generate().private_bytes_raw().hex().encode() + b"\n", SECRET)])
    key = _parse_private(read_file(path, f"the signing key of {name}", "make it"), path)
    return key.public_key().public_bytes_raw().hex()


def key_file(config: ClusterConfig, name: str) -> Path:
    return config.path(config.keys) / f"{name}.key"


def _parse_private(content: bytes, path: Path) -> Ed25519PrivateKey:
    try:
        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(content.decode().strip()))
    except ValueError:
        raise UsageError(f"{path} holds no signing key: it has {2 * KEY_BYTES} hexadecimal digits") from None


def _prefix(purpose: bytes, cluster_id: str) -> bytes:
    name = cluster_id.encode()
    return purpose + len(name).to_bytes(2, "big") + name


def _ticket_part(process: str, name: str, client_id: ProcessId) -> bytes:
    return client_id.to_bytes(8, "big", signed=True) + process.encode() + b"\0" + name.encode(errors="replace")


def _is_of_client(client_id: ProcessId, signed: bytes, proof: bytes) -> bool:
    """The cheap check comes first, so that a proof that was made up costs little."""
    public = proof[:KEY_BYTES]
    try:
        key = _public_key(public)
    except ValueError:
        return False
    return _is_signed(key, signed, proof[KEY_BYTES:]) and client_id_of(public) == client_id


def _is_signed(key: Ed25519PublicKey, data: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=10_000)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)


@lru_cache(maxsize=10_000)
def _slow_hash(public: bytes) -> bytes:
    return hashlib.scrypt(public, salt=b"amcast client id", n=_SLOW, r=8, p=1, dklen=8)
