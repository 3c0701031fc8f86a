"""Attacks on a real cluster with TLS and tokens, each for a second (`make attack` takes ten minutes), and the judge."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from amcast.check import check_run
from amcast.core.ids import SEQ_BITS
from amcast.net.node._client_service import ClientService
from amcast.net.wire.control import hello_decoder
from amcast.protocols import MULTICAST_PROTOCOLS, PROTOCOLS
from amcast.trace import GroupInfo, Recorder, RunInfo, read_run, write_run
from amcast.trace.schema import FINAL, OPTIMISTIC
from bench.attack._attacks import ATTACKS, EVERY_PROTOCOL
from bench.attack._bombardment import bombard
from bench.attack._cluster import AttackedCluster
from bench.attack._frames import mutated, with_nested
from bench.attack._judge import MEMORY_MAX_MB, Content, Outcome, told_apart
from bench.attack._tools import Field, Order

SECONDS = 1.0
CONNECTIONS = 400
ANSWER_S = 60.0

GENERAL = [name for name, each in ATTACKS.items() if each.family not in EVERY_PROTOCOL]
LIES = [name for name, each in ATTACKS.items() if each.family in EVERY_PROTOCOL]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("attack")]


@contextmanager
def running(folder: Path, protocol: str) -> Iterator[AttackedCluster]:
    cluster = AttackedCluster.make(folder / "c", protocol)
    try:
        asyncio.run(cluster.begin())
        yield cluster
    finally:
        cluster.stop()


class Shared:
    """One cluster for many tests, and a new one after a test that broke it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._running: contextmanager[AttackedCluster] | None = None  # type: ignore[type-arg]
        self._cluster: AttackedCluster | None = None
        self.is_broken = True

    def get(self) -> AttackedCluster:
        if self.is_broken:
            self.close()
            self._running = running(self._factory.mktemp("attack"), "fastcast")
            self._cluster = self._running.__enter__()
        self.is_broken = True  # until the test has passed
        assert self._cluster is not None
        return self._cluster

    def close(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._running = None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory)
    yield made
    made.close()


async def attack(cluster: AttackedCluster, names: list[str]) -> None:
    """With both tokens at once, while a correct client goes on; and after it."""
    statuses = (await cluster.statuses()).values()
    leaders = [status.name for status in statuses if status is not None and status.is_leader]
    attacks: list[Awaitable[None]] = []
    fields: list[Field] = []
    for part, token in enumerate((cluster.tokens.without_rights, cluster.tokens.with_rights)):
        config = str(cluster.folder / "cluster.toml")
        order = Order(config, names, part, SECONDS, CONNECTIONS, token, leaders, "")
        for name in names:
            fields.append(Field(order, name, io.StringIO()))
            attacks.append(ATTACKS[name].run(fields[-1]))
    await asyncio.gather(*attacks)
    assert all(sum(field.done.values()) for field in fields), "an attack that does nothing shows nothing"
    assert cluster.ended() == []
    async with cluster.client() as client:
        await client.multicast(["g1", "g2"], b"correct", ANSWER_S)
    assert max(cluster.peak_mb().values()) < MEMORY_MAX_MB


@pytest.mark.parametrize("name", GENERAL)
def test_a_correct_client_is_served_after(name: str, shared: Shared) -> None:
    cluster = shared.get()
    asyncio.run(attack(cluster, [name]))
    shared.is_broken = False


@pytest.mark.parametrize("protocol", MULTICAST_PROTOCOLS)
def test_lies_stop_nobody(protocol: str, tmp_path: Path) -> None:
    with running(tmp_path, protocol) as cluster:
        asyncio.run(attack(cluster, LIES))


# -- frames


def test_mutated_and_nested_frames_are_what_they_say() -> None:
    rng = Random(1)
    good = msgspec.msgpack.encode(["follow", 1, 0])
    frames = {mutated(good, rng) for _ in range(1_000)}
    assert len(frames) > 500
    deep = with_nested(good, 100, rng)
    assert len(deep) > 100
    with pytest.raises(msgspec.DecodeError):
        hello_decoder.decode(deep)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_bad_frame_is_a_surprise(protocol: str, tmp_path: Path) -> None:
    found = bombard(tmp_path / "c", protocol, 2_000)
    assert found.problems == []
    assert found.closed > 500


def test_a_frame_that_nobody_foresaw_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(ClientService, "_on_attach", fail)
    found = bombard(tmp_path / "c", "fastcast", 2_000)
    assert not found.is_good
    assert "could not handle" in found.problems[0]


# -- the judge

GOOD = Outcome("fastcast", ["ids"], {"ids": 1}, 100.0, 60.0, False, [], {"g1.p0": 100.0}, "pass", [], 0, [])


def test_a_round_is_good_only_without_any_complaint() -> None:
    assert GOOD.is_good
    bad = {
        "attacked_rate": 49.0,
        "calm_rate": 0.0,
        "is_waiting": True,
        "ended": ["g1.p0: RecursionError"],
        "peak_mb": {"g1.p0": 100.0, "g1.p1": 512.0},
        "verdict": "unknown",
        "lost": 1,
        "problems": ["not drained"],
    }
    for name, value in bad.items():
        assert not msgspec.structs.replace(GOOD, **{name: value}).is_good, name


HONEST, LIAR = 1 << 20, (1 << 20) + 1
INFO = RunInfo(
    run_id="r",
    protocol="skeen",
    seed=1,
    complete=True,
    groups=(GroupInfo(1, (0,)), GroupInfo(2, (1,))),
    correct=(0, 1),
)


FIRST, SECOND, THIRD = (
    (LIAR << SEQ_BITS, dst, payload) for dst, payload in (((1, 2), b"a"), ((1,), b"b"), ((2,), b"c"))
)


def judged(folder: Path, recorder: Recorder, contents: dict[int, list[Content]]) -> str:
    write_run(folder, INFO, recorder)
    return check_run(told_apart(read_run(folder), {LIAR}, contents)).verdict


def lying() -> Recorder:
    """One id for three messages."""
    recorder = Recorder()
    for id_, dst, _ in (FIRST, SECOND, THIRD):
        recorder.multicast(id_, LIAR, 0, dst, 1, 10 + len(dst))
    return recorder


def test_nothing_is_promised_to_a_liar(tmp_path: Path) -> None:
    assert judged(tmp_path / "run", lying(), {1: [], 2: []}) == "pass"


def test_messages_of_a_liar_are_told_apart(tmp_path: Path) -> None:
    recorder = lying()
    recorder.delivery(0, 1, 0, LIAR << SEQ_BITS, FINAL, 5, 4)
    recorder.delivery(1, 2, 0, LIAR << SEQ_BITS, FINAL, 6, 4)
    assert judged(tmp_path / "apart", recorder, {1: [SECOND], 2: [THIRD]}) == "pass"
    assert judged(tmp_path / "one", recorder, {1: [FIRST], 2: [FIRST]}) == "fail"  # with two timestamps


def test_what_a_liar_sent_is_delivered_everywhere_or_nowhere(tmp_path: Path) -> None:
    recorder = lying()
    recorder.delivery(0, 1, 0, LIAR << SEQ_BITS, FINAL, 5, 4)
    assert judged(tmp_path / "run", recorder, {1: [FIRST], 2: []}) == "fail"


def test_what_a_liar_sent_is_delivered_in_one_order(tmp_path: Path) -> None:
    recorder = lying()
    lie, honest = LIAR << SEQ_BITS, HONEST << SEQ_BITS
    recorder.multicast(honest, HONEST, 0, (1, 2), 1, 10)
    for process, group, order in ((0, 1, (lie, honest)), (1, 2, (honest, lie))):
        for position, message in enumerate(order):
            recorder.delivery(process, group, position, message, FINAL, 5 + position, 4)
    own = (honest, (1, 2), b"h")
    assert judged(tmp_path / "run", recorder, {1: [FIRST, own], 2: [own, FIRST]}) == "fail"


def test_guesses_about_a_liar_do_not_count(tmp_path: Path) -> None:
    recorder = lying()
    lie, honest = LIAR << SEQ_BITS, HONEST << SEQ_BITS
    recorder.multicast(honest, HONEST, 0, (1, 2), 1, 10)
    for process, group in ((0, 1), (1, 2)):
        recorder.delivery(process, group, 0, lie, OPTIMISTIC, None, 2)
        recorder.delivery(process, group, 1, honest, OPTIMISTIC, None, 3)
        recorder.delivery(process, group, 0, honest, FINAL, 5, 4)
    assert judged(tmp_path / "run", recorder, {}) == "pass"


def test_all_is_promised_to_a_correct_client(tmp_path: Path) -> None:
    recorder = lying()
    recorder.multicast(HONEST << SEQ_BITS, HONEST, 0, (1, 2), 1, 10)
    recorder.delivery(0, 1, 0, HONEST << SEQ_BITS, FINAL, 5, 4)
    assert judged(tmp_path / "run", recorder, {}) == "fail"
