"""Signatures of processes and clients: what is proved, to whom, and what a liar can make of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from amcast.core import UsageError
from amcast.core.ids import CLIENT_ID_LIMIT, PROCESS_ID_LIMIT
from amcast.net.config import ClusterConfig
from amcast.net.local import LocalCluster, plan
from amcast.net.security import signing
from amcast.net.security.signing import (
    OWNER_BYTES,
    ClientKey,
    SignedTickets,
    Verifier,
    client_id_of,
    key_file,
    load_signer,
    make_key,
    verifier_of,
)

CLUSTER = "c0ffee"


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return LocalCluster.create(tmp_path / "c", plan(tmp_path / "c", "byzcast", groups=1)).config


def test_a_process_proves_what_it_said(config: ClusterConfig) -> None:
    proof = load_signer(config, "g1.p1").sign(b"said")
    verifier = verifier_of(config)
    assert verifier.verify(1, b"said", proof)
    assert not verifier.verify(2, b"said", proof), "of another process"
    assert not verifier.verify(1, b"not said", proof)
    assert not verifier.verify(1, b"said", proof[:-1])
    assert not verifier.verify(1, b"said", b"")
    assert not verifier.verify(9, b"said", proof), "of no process at all"


def test_what_is_said_in_one_cluster_is_not_said_in_another(config: ClusterConfig) -> None:
    other = msgspec.structs.replace(config, id="another")
    assert not verifier_of(other).verify(0, b"said", load_signer(config, "g1.p0").sign(b"said"))


def test_a_client_proves_what_it_said_by_its_id_alone() -> None:
    key, other = ClientKey(CLUSTER), ClientKey(CLUSTER)
    id_, second, strange = key.new_id(), key.new_id(), other.new_id()
    verifier = Verifier(CLUSTER, {})
    [proof] = key.sign_all([(id_, b"said")])
    [by_other] = other.sign_all([(strange, b"said")])
    assert PROCESS_ID_LIMIT <= id_ < CLIENT_ID_LIMIT
    assert id_ != second
    assert id_ == client_id_of(proof[:OWNER_BYTES])
    assert verifier.verify(id_, b"said", proof)
    assert not verifier.verify(id_, b"not said", proof)
    assert not verifier.verify(second, b"said", proof), "a good signature, of another id of the client"
    assert not verifier.verify(strange, b"said", proof), "a good signature, of another client"
    forged = proof[:OWNER_BYTES] + by_other[OWNER_BYTES:]
    assert not verifier.verify(id_, b"said", forged), "its key, and another one's signature"
    for nonsense in (b"", b"x", proof[:OWNER_BYTES], bytes(len(proof)), proof + bytes(16), proof + bytes(9_999)):
        assert verifier.verify(id_, b"said", nonsense) == (nonsense == proof + bytes(16)), "zeros are no neighbour"


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 64])
def test_one_signature_proves_many_messages(count: int) -> None:
    key = ClientKey(CLUSTER)
    ids = [key.new_id() for _ in range(3)]
    said = [(ids[number % 3], b"%d" % number) for number in range(count)]
    proofs = key.sign_all(said)
    verifier = Verifier(CLUSTER, {})
    assert all(verifier.verify(id_, data, proof) for (id_, data), proof in zip(said, proofs, strict=True))
    assert len(verifier._roots) == 1, "verified once"
    for number, proof in enumerate(proofs):
        others = [data for place, (_, data) in enumerate(said) if place != number]
        assert not any(verifier.verify(said[number][0], data, proof) for data in others), "each proves its own"
        assert not verifier.verify(said[number][0], said[number][1], bytes([proof[0] ^ 1]) + proof[1:])


def test_roots_that_were_good_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_ROOTS_MAX", 3)
    key, verifier = ClientKey(CLUSTER), Verifier(CLUSTER, {})
    id_ = key.new_id()
    for number in range(10):
        [proof] = key.sign_all([(id_, b"%d" % number)])
        assert verifier.verify(id_, b"%d" % number, proof)
    assert len(verifier._roots) == 3


def test_a_ticket_is_good_for_one_process_and_one_name() -> None:
    key = ClientKey(CLUSTER)
    id_, second = key.new_id(), key.new_id()
    ticket = key.ticket(id_, "g1.p0", "alice")
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(id_, "alice", ticket) is None
    assert SignedTickets(CLUSTER, "g1.p1").problem_with(id_, "alice", ticket), "passed on by g1.p0"
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(id_, "bob", ticket)
    assert SignedTickets("other", "g1.p0").problem_with(id_, "alice", ticket)
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(second, "alice", ticket)
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(-1, "alice", ticket)
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(1 << 70, "alice", ticket)
    [proof] = key.sign_all([(id_, b"")])
    assert SignedTickets(CLUSTER, "g1.p0").problem_with(id_, "alice", proof), "no ticket"


def test_a_ticket_proves_no_message() -> None:
    key = ClientKey(CLUSTER)
    id_ = key.new_id()
    ticket = key.ticket(id_, "g1.p0", "alice")
    signed = id_.to_bytes(8, "big") + b"g1.p0\0alice"
    assert not Verifier(CLUSTER, {}).verify(id_, signed, ticket + bytes(2))


def test_a_key_is_made_once_and_closed_to_others(config: ClusterConfig) -> None:
    path = key_file(config, "g1.p0")
    before = path.read_bytes()
    assert make_key(config, "g1.p0") == config.process_named("g1.p0").key
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o077 == 0


def test_a_key_that_is_not_the_one_of_the_configuration_is_refused(config: ClusterConfig) -> None:
    key_file(config, "g1.p0").write_bytes(key_file(config, "g1.p1").read_bytes())
    with pytest.raises(UsageError, match=r"not the key that cluster\.toml has for g1\.p0"):
        load_signer(config, "g1.p0")


@pytest.mark.parametrize("content", [b"", b"zz" * 32, b"\xff\xfe", b"00"])
def test_a_file_that_holds_no_key_is_refused(content: bytes, config: ClusterConfig) -> None:
    key_file(config, "g1.p0").write_bytes(content)
    with pytest.raises(UsageError, match="holds no signing key"):
        load_signer(config, "g1.p0")


def test_a_missing_key_says_how_to_make_one(config: ClusterConfig) -> None:
    key_file(config, "g1.p0").unlink()
    with pytest.raises(UsageError, match=r"make it with `amcast keys g1\.p0`"):
        load_signer(config, "g1.p0")


def test_a_process_without_a_key_in_the_configuration_is_named(config: ClusterConfig) -> None:
    process = (msgspec.structs.replace(config.process[0], key=""), *config.process[1:])
    with pytest.raises(UsageError, match=r"g1\.p0 has no signing key: .* `amcast keys g1\.p0`"):
        msgspec.structs.replace(config, process=process).check()
