"""Signatures, in clusters whose members and clients may lie: Ed25519, over the cluster's id and what is said.

A process has one key. The private half is a file that its own node alone reads; the public halves of all processes are
in `cluster.toml`, which everybody has.

A client draws a key for its connections, and its sender ids follow from it:

    id       = a slow hash of the public key and a number, cut to the 37 bits of a client's id
    ticket   = public key, number, signature                      of "this id is mine", for one process
    proof    = public key, number, signature, place, path         of one message, or one batch

So nobody gives out ids, and nobody has to be believed about whose an id is. The hash is slow because 37 bits are few:
to speak for a client, a liar must find another key with the same id, which takes years of CPU time, and must do so
before the client leaves. Two clients may draw the same id by chance: in a cluster that has seen a million, a new
one does so once in a hundred thousand times. A group then takes messages of the first alone
(`protocols/_byzantine.py`): the second gets no answers, and the next client draws again.

A signature costs far more than anything else that is done for a message. So a client signs all that leaves in one turn
with one: the root of a tree of hashes, whose leaves are its messages (`core` calls what is signed `signed_part`). Each
message carries the hashes beside its way up to the root. Whoever has verified the root once knows the other messages by
hashing alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ...core import ProcessId, UsageError
from ...core.ids import CLIENT_ID_LIMIT, PROCESS_ID_LIMIT
from ..config import ClusterConfig
from ..system import system
from ._files import SECRET, Draft, read_file, write_all

KEY_BYTES = 32
_NUMBER = 4  # bytes, of an id among those of a key
OWNER_BYTES = KEY_BYTES + _NUMBER  # of a client's proof: whose it is
_SIGNATURE, _PLACE, _HASH = 64, 2, 16  # bytes
_PLACE_FROM = OWNER_BYTES + _SIGNATURE
_PATH_FROM = _PLACE_FROM + _PLACE
_PATH_MAX = 8 * _PLACE * _HASH
SIGNED_MAX = 1 << 8 * _PLACE  # messages under one signature
_NOBODY = bytes(_HASH)
_ROOTS_MAX = 10_000
# What is signed for one purpose is of no use for another.
_SAID, _TICKET, _LINK = b"amcast said\0", b"amcast ticket\0", b"amcast link\0"
_SLOW = 256  # rounds of scrypt: half a millisecond, and 256 KB of memory


class Signer:
    """Signs for one process."""

    def __init__(self, cluster_id: str, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._said, self._link = _prefix(_SAID, cluster_id), _prefix(_LINK, cluster_id)

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(self._said + data)

    def prove_link(self, data: bytes) -> bytes:
        """At the beginning of a connection (`seal.py`)."""
        return self._key.sign(self._link + data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ClientKey:
    """The key of a client program, for all its sender ids."""

    def __init__(self, cluster_id: str) -> None:
        drawn = system().random_bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big")
        self._key = Ed25519PrivateKey.from_private_bytes(drawn)
        self._public = self._key.public_key().public_bytes_raw()
        self._said, self._ticket = _prefix(_SAID, cluster_id), _prefix(_TICKET, cluster_id)
        self._numbers: dict[ProcessId, bytes] = {}  # of its ids
        self._drawn = 0

    def new_id(self) -> ProcessId:
        number = self._drawn.to_bytes(_NUMBER, "big")
        self._drawn += 1
        id_ = client_id_of(self._public + number)
        self._numbers[id_] = number
        return id_

    def forget_id(self, id_: ProcessId) -> None:
        self._numbers.pop(id_, None)

    def ticket(self, id_: ProcessId, process: str, name: str, session: bytes = b"") -> bytes:
        """Proves the id to this process, and on this connection if it has a number: it is of no use elsewhere."""
        signature = self._key.sign(self._ticket + _ticket_part(process, name, id_, session))
        return self._public + self._numbers[id_] + signature

    def sign_all(self, said: Sequence[tuple[ProcessId, bytes]]) -> list[bytes]:
        """The proof of each, of the id that says it."""
        levels = _tree([_leaf(data) for _, data in said])
        signature = self._key.sign(self._said + levels[-1][0])
        return [
            self._public + self._numbers[id_] + signature + place.to_bytes(_PLACE, "big") + _path(levels, place)
            for place, (id_, _) in enumerate(said)
        ]

    def __repr__(self) -> str:
        return "ClientKey()"


def _leaf(data: bytes) -> bytes:
    return sha256(b"\0" + data).digest()[:_HASH]


def _above(left: bytes, right: bytes) -> bytes:
    """It begins otherwise than a leaf: nobody can pass off the one as the other."""
    return blake2b(b"\1" + left + right, digest_size=_HASH).digest()


def _tree(leaves: list[bytes]) -> list[list[bytes]]:
    """All levels, from the leaves to the root. One without a neighbour goes up as it is."""
    levels = [leaves]
    while len(level := levels[-1]) > 1:
        pairs = [_above(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
        levels.append(pairs + level[len(pairs) * 2 :])
    return levels


def _path(levels: list[list[bytes]], place: int) -> bytes:
    """The neighbours on the way from a leaf to the root; where there is none, zeros."""
    beside: list[bytes] = []
    for level in levels[:-1]:
        neighbour = place ^ 1
        beside.append(level[neighbour] if neighbour < len(level) else _NOBODY)
        place >>= 1
    return b"".join(beside)


def _root(leaf: bytes, place: int, path: bytes) -> bytes:
    found = leaf
    for start in range(0, len(path), _HASH):
        neighbour = path[start : start + _HASH]
        if neighbour != _NOBODY:
            found = _above(neighbour, found) if place & 1 else _above(found, neighbour)
        place >>= 1
    return found


class Verifier:
    """Knows the keys of all processes of a cluster."""

    def __init__(self, cluster_id: str, processes: Mapping[ProcessId, bytes]) -> None:
        self._processes = {id_: Ed25519PublicKey.from_public_bytes(key) for id_, key in processes.items()}
        self._said = _prefix(_SAID, cluster_id)
        self._roots: dict[bytes, None] = {}  # of clients, with key and signature: those that were good, the last ones

    def verify(self, process: ProcessId, data: bytes, proof: bytes) -> bool:
        if process >= PROCESS_ID_LIMIT:
            return self._is_of_client(process, data, proof)
        key = self._processes.get(process)
        return key is not None and _is_signed(key, self._said + data, proof)

    def _is_of_client(self, client: ProcessId, data: bytes, proof: bytes) -> bool:
        """The slow hash comes last, so that a proof that was made up costs little."""
        path = proof[_PATH_FROM:]
        if len(proof) < _PATH_FROM or len(path) > _PATH_MAX:
            return False
        owner, signature, place = proof[:OWNER_BYTES], proof[OWNER_BYTES:_PLACE_FROM], proof[_PLACE_FROM:_PATH_FROM]
        root = _root(_leaf(data), int.from_bytes(place, "big"), path)
        known = owner[:KEY_BYTES] + signature + root
        if known not in self._roots:
            if not _is_signed_by(owner[:KEY_BYTES], self._said + root, signature):
                return False
            self._roots[known] = None
            if len(self._roots) > _ROOTS_MAX:
                del self._roots[next(iter(self._roots))]
        return client_id_of(owner) == client


class SignedTickets:
    """Checks the tickets that clients sign for this process. There is nothing to issue, and they do not end."""

    life_s = 0

    def __init__(self, cluster_id: str, process: str) -> None:
        self._process = process
        self._ticket = _prefix(_TICKET, cluster_id)

    def issue(self, client_id: ProcessId, name: str) -> bytes:
        return b""

    def problem_with(self, client_id: ProcessId, name: str, ticket: bytes, session: bytes = b"") -> str | None:
        return None if self._is_good(client_id, name, ticket, session) else "the ticket does not prove this client id"

    def _is_good(self, client_id: ProcessId, name: str, ticket: bytes, session: bytes) -> bool:
        if not PROCESS_ID_LIMIT <= client_id < CLIENT_ID_LIMIT:  # a client may send anything
            return False
        owner, signature = ticket[:OWNER_BYTES], ticket[OWNER_BYTES:]
        signed = self._ticket + _ticket_part(self._process, name, client_id, session)
        return _is_signed_by(owner[:KEY_BYTES], signed, signature) and client_id_of(owner) == client_id


@lru_cache(maxsize=10_000)
def client_id_of(owner: bytes) -> ProcessId:
    """The id of a public key and a number."""
    slow = hashlib.scrypt(owner, salt=b"amcast client id", n=_SLOW, r=8, p=1, dklen=8)
    number = int.from_bytes(slow, "big")
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


def is_link_proof(cluster_id: str, public: bytes, data: bytes, proof: bytes) -> bool:
    return _is_signed_by(public, _prefix(_LINK, cluster_id) + data, proof)


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


def _ticket_part(process: str, name: str, client_id: ProcessId, session: bytes) -> bytes:
    named = client_id.to_bytes(8, "big") + len(session).to_bytes(1, "big") + session + process.encode()
    return named + b"\0" + name.encode(errors="replace")


def _is_signed_by(public: bytes, data: bytes, signature: bytes) -> bool:
    try:
        key = _public_key(public)
    except ValueError:
        return False
    return _is_signed(key, data, signature)


def _is_signed(key: Ed25519PublicKey, data: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=10_000)
def _public_key(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
