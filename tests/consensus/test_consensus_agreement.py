"""Random schedules: any order, loss, repetition, crashes in the middle of a step, disks kept or lost.

The harness holds every value that is handed up against what any other learner was handed for that instance.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

import amcast.consensus.multipaxos.log as log_module
from amcast.consensus import PaxosConfig
from amcast.core import majority
from tests.consensus.paxos_harness import Cluster
from tests.mutants import ForgetfulAcceptor

SEEDS = 90
STEPS = 1_500


def random_config(rng: Random) -> PaxosConfig:
    return PaxosConfig(
        tick_us=1,
        election_ticks=rng.choice((2, 4)),
        retransmit_ticks=2,
        window=rng.choice((1, 3)),
        snapshot_every=rng.choice((3, 1_000)),
        lag_max=rng.choice((2, 1_000)),
        learn_chunk=rng.choice((2, 256)),
        value_bytes=rng.choice((1, 4, 1_000)),
        window_bytes=rng.choice((1, 4, 1_000)),
        snapshot_bytes=rng.choice((5, 1_000)),
        lag_bytes=rng.choice((5, 1_000)),
        learn_bytes=rng.choice((1, 1_000)),
    )


class Dice:
    def __init__(self, size: int, seed: int, remote: int) -> None:
        self.rng = Random(f"agreement/{size}/{seed}")
        self.size = size
        self.cluster = Cluster(size, random_config(self.rng), remote, seed, at_once=seed % 3 == 0)
        self.disks_to_lose = size - majority(size)
        self.lost: set[int] = set()  # members that lost a disk: they may lose the next one as well
        self.proposed = 0

    def step(self) -> None:
        rng, cluster = self.rng, self.cluster
        process = rng.randrange(len(cluster.members))
        member = cluster[process]
        roll = rng.random()
        if roll < 0.004:
            cluster.crash(process)
        elif not member.is_up:
            if roll < 0.1:
                self.restart(process)
        elif roll < 0.08:
            cluster.tick(process)
        elif roll < 0.12:
            self.proposed += 1
            cluster.propose(process, self.proposed)
        elif roll < 0.2:
            cluster.turn(process, self.cut())
        elif cluster.wire:
            self.move()

    def move(self) -> None:
        """One packet arrives, in any order; some are lost, some come twice."""
        rng, cluster = self.rng, self.cluster
        index = rng.randrange(len(cluster.wire)) if rng.random() < 0.3 else 0
        packet = cluster.wire[index]
        if rng.random() > 0.05:
            del cluster.wire[index]
        if rng.random() > 0.05:
            cluster.deliver(packet, self.cut())

    def cut(self) -> int | None:
        return self.rng.randrange(6) if self.rng.random() < 0.005 else None

    def restart(self, process: int) -> None:
        may_lose = process < self.size and (self.disks_to_lose > 0 or process in self.lost)
        loses = may_lose and self.rng.random() < 0.2
        if loses and process not in self.lost:
            self.disks_to_lose -= 1
            self.lost.add(process)
        self.cluster.restart(process, with_disk=not loses)

    def calm(self) -> None:
        """Everyone is up and every message arrives: the group must make progress."""
        cluster = self.cluster
        for member in cluster.members:
            if not member.is_up:
                cluster.restart(member.process)
        for number in range(400):
            for member in cluster.members:
                cluster.tick(member.process)
            cluster.drain()
            leaders = [m.process for m in cluster.members if m.log.is_leader]
            if number > 50 and len(leaders) == 1:
                cluster.propose(leaders[0], "end")
            if leaders:
                cluster.turn(leaders[0])
            if all("end" in member.values for member in cluster.members):
                return
        raise AssertionError(f"no progress: {[(m.process, m.log.is_leader, m.values) for m in cluster.members]}")


@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize("batch", range(3))
def test_no_two_learners_are_handed_different_values(size: int, batch: int) -> None:
    ordered = 0
    for seed in range(batch * SEEDS // 3, (batch + 1) * SEEDS // 3):
        dice = Dice(size, seed, remote=seed % 2)
        try:
            for _ in range(STEPS):
                dice.step()
            ordered += len(dice.cluster.truth)
            dice.calm()
        except AssertionError as error:
            raise AssertionError(f"size {size}, seed {seed}: {error}") from error
        logs = [member.applied for member in dice.cluster.members]
        for log in logs:
            for instance, value in log.items():
                assert logs[0].get(instance, value) == value
        entries = [e for e in dice.cluster[0].values if e != "end"]
        assert set(entries) <= set(range(1, dice.proposed + 1))
    assert ordered > 20, "the schedules are so wild that nothing gets ordered"


def play(seeds: Iterable[int]) -> None:
    for seed in seeds:
        dice = Dice(3, seed, remote=seed % 2)
        for _ in range(STEPS):
            dice.step()


def test_an_acceptor_that_forgets_its_promises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: the seeds are those of range(600), from a bit before the first that is known to."""
    monkeypatch.setattr(log_module, "Acceptor", ForgetfulAcceptor)
    with pytest.raises(AssertionError, match="handed different values"):
        play((*range(500, 600), *range(500)))
