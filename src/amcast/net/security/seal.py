"""Proofs of who is at the other end of a connection, and of its bytes, where members may lie and there is no TLS.

Whoever dials begins, and both prove who they are with the keys by which they sign (`signing.py`):

    dialer                                            process that is dialled
      |-- kind and name, one-time key ------------------>|
      |<------------------- name, one-time key, proof ---|   a signature of all that was said so far
      |-- proof, and HELLO, sealed --------------------->|   the same by a process; clients prove their ids by tickets

The one-time keys (X25519) are drawn for each connection. They make both proofs good for this connection alone, and give
both sides two secrets, one for each direction. From then on, whatever is written carries a tag, as in TLS: AES-GCM, for
which the data is authenticated and not encrypted, and its place among what is written is the number that must not come
twice. Processors have instructions for it: it costs a tenth of a hash of the same data, if that is large, as proposals
are. So whoever is in between can cut the connection, as he always can,
and read: nothing here is hidden. What he alters, repeats, leaves out, moves or adds, or sends back to where it came
from, has a wrong tag, and ends the connection. A client's tickets name the connection as well (`Session.number`): those
that he has overheard are no use to him.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..config import ClusterConfig
from ..system import system
from .identity import Identity, Kind
from .signing import KEY_BYTES, Signer, is_link_proof, public_key_of
from .tls import PeerError

TAG = 16  # bytes
_PLACE = 12  # bytes
_CLIENT: Kind = "client"
_PROCESS: Kind = "process"


class Opening(msgspec.Struct, frozen=True, array_like=True, tag="seal?"):
    """From whoever dials."""

    kind: Kind
    name: str
    once: bytes  # the public half of a key for this connection


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="seal"):
    name: str
    once: bytes
    proof: bytes


class Closing(msgspec.Struct, frozen=True, array_like=True, tag="sealed"):
    proof: bytes  # of a process; empty from a client


class Tagger:
    """Makes the tags of what is written in one direction, one after the other."""

    def __init__(self, secret: bytes) -> None:
        self._aead = AESGCM(secret)
        self._written = 0

    def tag(self, data: bytes | memoryview) -> bytes:
        return self._aead.encrypt(self._next_place(), b"", data)

    def is_next(self, tag: bytes | memoryview, data: memoryview) -> bool:
        try:
            self._aead.decrypt(self._next_place(), tag, data)
        except InvalidTag:
            return False
        return True

    def _next_place(self) -> bytes:
        place = self._written.to_bytes(_PLACE, "big")
        self._written += 1
        return place

    def __repr__(self) -> str:
        return "Tagger()"


class Session(msgspec.Struct, frozen=True):
    """A connection on which both sides have said who they are."""

    peer: Identity  # proved, if it is a process
    number: bytes  # of the connection: no other one has it
    sends: Tagger
    hears: Tagger

    def __repr__(self) -> str:
        return f"Session({self.peer})"


class Seal:
    """What one process or client program needs for all its connections."""

    def __init__(
        self, cluster: str, cluster_id: str, kind: Kind, name: str, keys: Mapping[str, bytes], signer: Signer | None
    ) -> None:
        self._cluster, self._cluster_id = cluster, cluster_id
        self._kind, self._name = kind, name
        self._keys = keys  # of all processes
        self._signer = signer  # a process's own

    @classmethod
    def of_process(cls, config: ClusterConfig, name: str, signer: Signer) -> Seal:
        return cls(config.cluster, config.id, _PROCESS, name, _keys_of(config), signer)

    @classmethod
    def of_client(cls, config: ClusterConfig, name: str) -> Seal:
        return cls(config.cluster, config.id, _CLIENT, name, _keys_of(config), None)

    def dial(self, name: str | None) -> DialledHandshake:
        """`name`: who must answer; None: any process of the cluster."""
        return DialledHandshake(self, name)

    def accept(self) -> AcceptedHandshake:
        return AcceptedHandshake(self)

    def opening(self, once: bytes) -> Opening:
        return Opening(self._kind, self._name, once)

    def answer(self, opening: Opening, once: bytes) -> Answer:
        return Answer(self._name, once, self._proof(_ANSWERS, opening, self._name, once))

    def closing(self, opening: Opening, answer: Answer) -> Closing:
        return Closing(b"" if self._signer is None else self._proof(_CLOSES, opening, answer.name, answer.once))

    def _proof(self, role: bytes, opening: Opening, name: str, once: bytes) -> bytes:
        assert self._signer is not None
        return self._signer.prove_link(_said(role, opening, name, once))

    def check_process(self, role: bytes, name: str, opening: Opening, answer: Answer, proof: bytes) -> None:
        """Raises unless this process of the cluster said this: in its role, and on this connection."""
        key = self._keys.get(name)
        if key is None or name == self._name:
            raise PeerError(f"no other process of this cluster is called '{name[:64]}'")
        if not is_link_proof(self._cluster_id, key, _said(role, opening, answer.name, answer.once), proof):
            raise PeerError(f"it does not prove that it is {name}, of this cluster")

    def session(self, kind: Kind, name: str, opening: Opening, answer: Answer, shared: bytes, dials: bool) -> Session:
        said = _said(_SECRETS, opening, answer.name, answer.once)
        number = blake2b(said + self._cluster_id.encode(), digest_size=32).digest()
        secrets = blake2b(number, key=shared, digest_size=64).digest()
        out, back = Tagger(secrets[:32]), Tagger(secrets[32:])
        peer = Identity(kind, name, self._cluster)
        return Session(peer, number, out, back) if dials else Session(peer, number, back, out)

    def __repr__(self) -> str:
        return f"Seal({self._kind} {self._name})"


_ANSWERS, _CLOSES, _SECRETS = b"answers", b"closes", b"secrets"  # what was said for one purpose is no use for another


def _said(role: bytes, opening: Opening, name: str, once: bytes) -> bytes:
    return msgspec.msgpack.encode((role, opening.kind, opening.name, opening.once, name, once))


class Handshake(Protocol):
    """The beginning of one connection, without the connection: each side is fed frames, and says what to send."""

    session: Session | None  # from the last frame on

    def begin(self) -> msgspec.Struct | None: ...
    def take(self, data: memoryview) -> msgspec.Struct | None:
        """Raises PeerError if the other side is not who it should be, or says something else."""


class DialledHandshake:
    def __init__(self, seal: Seal, name: str | None) -> None:
        self._seal, self._expected = seal, name
        self._once = _draw()
        self._opening = seal.opening(_public_half(self._once))
        self.session: Session | None = None

    def begin(self) -> Opening:
        return self._opening

    def take(self, data: memoryview) -> Closing:
        answer = _answer_decoder.decode(data)
        if self._expected is not None and answer.name != self._expected:
            raise PeerError(f"it says that it is {answer.name[:64]}, and not {self._expected}")
        seal, opening = self._seal, self._opening
        seal.check_process(_ANSWERS, answer.name, opening, answer, answer.proof)
        shared = _shared(self._once, answer.once)
        self.session = seal.session(_PROCESS, answer.name, opening, answer, shared, dials=True)
        return seal.closing(opening, answer)


class AcceptedHandshake:
    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._said: tuple[Opening, Answer, bytes] | None = None
        self.session: Session | None = None

    def begin(self) -> None:
        return None

    def take(self, data: memoryview) -> Answer | None:
        if self._said is None:
            return self._open(_opening_decoder.decode(data))
        opening, answer, shared = self._said
        proof = _closing_decoder.decode(data).proof
        if opening.kind == _PROCESS:
            self._seal.check_process(_CLOSES, opening.name, opening, answer, proof)
        self.session = self._seal.session(opening.kind, opening.name, opening, answer, shared, dials=False)
        return None

    def _open(self, opening: Opening) -> Answer:
        once = _draw()
        shared = _shared(once, opening.once)
        answer = self._seal.answer(opening, _public_half(once))
        self._said = opening, answer, shared
        return answer


_opening_decoder = msgspec.msgpack.Decoder(Opening)
_answer_decoder = msgspec.msgpack.Decoder(Answer)
_closing_decoder = msgspec.msgpack.Decoder(Closing)


def _keys_of(config: ClusterConfig) -> dict[str, bytes]:
    return {entry.id: public_key_of(config, entry.id) for entry in config.process}


def _draw() -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(system().random_bits(8 * KEY_BYTES).to_bytes(KEY_BYTES, "big"))


def _public_half(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _shared(own: X25519PrivateKey, other: bytes) -> bytes:
    """A key that makes the result the same for everybody is refused by the library."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:
        raise PeerError("its one-time key is none") from None
