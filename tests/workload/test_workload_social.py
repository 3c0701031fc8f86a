"""The social network: how its users are divided, and where their requests go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from amcast.core import UsageError, grid, latency_preset
from amcast.sim import scenario, simulate
from amcast.workload import Seat, Social, stream_random
from amcast.workload.friends import BLOCK, Graph, followers_of, network_of, spread_of
from amcast.workload.social import (
    GEOPAXOS_3,
    GEOPAXOS_5,
    Follow,
    Post,
    ReadTimeline,
    SocialStream,
)

SMALL = Social(users=400, followers_max=20)


def stream_of(workload: Social, groups: int = 4, number: int = 0) -> SocialStream:
    topology = grid(groups, 1, 1)
    workload.check(topology)
    return workload.stream(workload.geography(topology, None), Seat(number), stream_random(1, number))


def shares(workload: Social, groups: int) -> list[float]:
    """In percent: the users with followers in one group, in two, ..."""
    found = spread_of(workload.graph(), groups)
    return [100 * found.get(count, 0) / workload.users for count in range(1, groups + 1)]


def test_followers_are_in_as_many_partitions_as_fastcast_says() -> None:
    """7,110 users of 10,000 have followers in one of 16 partitions, 2,474 in two, 376 in three, 40 in four or five."""
    found = shares(Social(), 16)
    assert found[:3] == pytest.approx([71.10, 24.74, 3.76], abs=1)
    assert found[3] + found[4] == pytest.approx(0.40, abs=0.2)
    assert sum(found[5:]) == 0
    sizes = [len(members) for members in network_of(Social().graph(), 16).members]
    assert sum(sizes) == 10_000
    assert max(sizes) < 1.05 * 625


def test_followers_are_in_as_many_regions_as_geopaxos_says() -> None:
    assert shares(GEOPAXOS_3, 3) == pytest.approx([80, 18, 2], abs=1)
    assert shares(GEOPAXOS_5, 5) == pytest.approx([74, 22, 2.6, 1, 0.4], abs=1)


def test_followers_near_by_are_as_many_as_zipf_says() -> None:
    graph = Graph(20_000, 1.5, 30, 0.0, 1)
    user, follower = graph.draw()
    counts = np.bincount(user, minlength=graph.users)
    assert counts.min() == 1
    assert counts.max() == 30
    found = np.bincount(counts, minlength=31)[1:] / graph.users
    assert found[:5] == pytest.approx(graph.follower_shares()[:5], abs=0.012)
    assert not (user == follower).any()


def test_a_block_can_be_drawn_by_itself() -> None:
    graph = Graph(3 * BLOCK - 5, 1.5, 30, 0.3, 7)
    user, follower = graph.draw()
    mine = (user >= BLOCK) & (user < 2 * BLOCK)
    for whole, block in zip((user[mine], follower[mine]), graph.draw_block(1), strict=True):
        assert (whole == block).all()


def test_a_post_goes_to_the_groups_of_all_followers() -> None:
    stream = stream_of(SMALL)
    network, followers = network_of(SMALL.graph(), 4), followers_of(SMALL.graph())
    for dst, payload in stream.draw(300):
        assert len(payload) == 64
        assert 1 <= len(dst) <= 4
    for _ in range(100):
        request = stream.next()
        assert isinstance(request, Post)
        wanted = {network.parts[reader] + 1 for reader in followers[request.user]}
        assert stream.destinations(request) == tuple(sorted(wanted))


def test_requests_have_their_shares() -> None:
    stream = stream_of(Social(users=400, followers_max=20, timelines=0.6, follows=0.1))
    found = Counter(type(stream.next()) for _ in range(3_000))
    assert found[ReadTimeline] / 3_000 == pytest.approx(0.6, abs=0.04)
    assert found[Follow] / 3_000 == pytest.approx(0.1, abs=0.03)


def test_a_client_posts_to_those_who_followed_since() -> None:
    stream = stream_of(Social(users=400, followers_max=20, follows=1.0))
    network = network_of(SMALL.graph(), 4)
    for _ in range(200):
        request = stream.next()
        assert isinstance(request, Follow)
        assert network.parts[request.user] + 1 in stream.destinations(Post(request.followed, b""))
        assert set(stream.destinations(request)) == {
            network.parts[each] + 1 for each in (request.user, request.followed)
        }


def test_clients_act_for_the_users_of_their_home() -> None:
    workload = Social(users=400, followers_max=20, acts_for="home", timelines=1.0)
    for number in range(4):
        assert {dst for dst, _ in stream_of(workload, number=number).draw(50)} == {(number + 1,)}


def test_it_runs_on_groups_and_on_objects() -> None:
    """A post is a message to groups, or an operation on the timelines of all followers."""
    for name in ("fastcast", "geopaxos"):
        workload = Social(users=200, followers_max=10, timelines=0.5, acts_for="home")
        made = scenario(name, "sites", groups=3, clients=3, messages=60, workload=workload, seed=2)
        result = simulate(made)
        assert result.complete
        assert result.messages == 60


def test_clients_live_where_their_users_are() -> None:
    sites = latency_preset("sites")
    made = scenario("skeen", "sites", groups=3, clients=6, messages=1, workload=SMALL)
    assert [made.topology().region(client) for client in made.topology().clients] == [*sites.regions[:3]] * 2


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        (Social(users=2), "use one for each at least"),
        (Social(followers_max=0), "followers_max of 0 is out of range"),
        (Social(timelines=0.8, follows=0.4), "are no shares"),
        (Social(zipf=-1), "a zipf of 0 to 10"),
        (Social(payload_bytes=-1), "a payload of -1 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused(workload: Social, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        workload.check(grid(3, 1, 1))
