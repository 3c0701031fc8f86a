"""Applications on objects: the store, and the examples on GeoPaxos in the simulator, with moves and faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from amcast.apps import ObjectStore, RefusedError, View, answer_of, operation
from amcast.check import check_run
from amcast.core import AppMessage, ProcessId, app_message, encode
from amcast.protocols.geopaxos import Operation
from amcast.sim import FaultPlan, Scenario, scenario
from amcast.sim.faults import CrashGroup, CrashLeader, CutLeader
from amcast.sim.run import Simulation
from tests.apps.example_apps import load_example

social, market = load_example("social"), load_example("market")
SECOND = 1_000_000
USERS = [f"user{number}" for number in range(8)]
ACCOUNTS = [f"c{number}" for number in range(6)]
GOODS = ["apples", "pears"]


# -- the store


def increment(request: dict[str, Any], view: View) -> Any:
    for name in request["names"]:
        view[name] = view.get(name, 0) + 1
    return [view[name] for name in request["names"]]


def test_an_operation_changes_what_it_names() -> None:
    store = ObjectStore()
    assert answer_of(store.apply(operation(["a", "b"], names=["a", "b", "a"]), increment)) == [2, 1, 2]
    assert store.all() == {"a": 2, "b": 1}


def test_an_operation_that_touches_what_it_does_not_name_changes_nothing() -> None:
    store = ObjectStore()
    with pytest.raises(RefusedError, match="touches b and does not name it"):
        answer_of(store.apply(operation(["a"], names=["a", "b"]), increment))
    assert store.all() == {}


@pytest.mark.parametrize("body", [b"no JSON", b"[1]", b"[" * 100_000, b"9" * 10_000, b"\xff"])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError, match="request"):
        answer_of(ObjectStore().apply(encode(Operation(("a",), body)), increment))


def test_a_move_changes_nothing() -> None:
    store = ObjectStore()
    store.apply(encode(Operation(("a",), b"no JSON", site=2)), increment)
    assert store.all() == {}


def test_a_value_that_is_changed_in_place_stays_as_it_was() -> None:
    def sloppy(request: dict[str, Any], view: View) -> None:
        view.setdefault("a", []).append(1)

    store = ObjectStore()
    store.apply(operation(["a"]), sloppy)
    assert store.all() == {"a": []}


def test_an_object_can_be_removed_and_the_store_handed_over() -> None:
    def remove(request: dict[str, Any], view: View) -> int:
        del view["a"]
        return len(view)

    store, other = ObjectStore(), ObjectStore()
    store.apply(operation(["a", "b"], names=["a", "b"]), increment)
    assert answer_of(store.apply(operation(["a", "b"]), remove)) == 1
    other.restore(store.snapshot())
    assert (other.all(), other.snapshot()) == ({"b": 1}, store.snapshot())


@pytest.mark.parametrize("machine", [social.Social("g1"), market.Market("g1")])
@pytest.mark.parametrize(
    "request_", [{}, {"post": 1}, {"deposit": "1", "to": "x"}, {"deposit": -1, "to": "x"}, {"a": []}]
)
def test_nonsense_is_refused_and_raises_nothing(machine: Any, request_: dict[str, Any]) -> None:
    payload = operation(["x"], **request_)
    with pytest.raises(RefusedError, match="there is no such request"):
        answer_of(machine.apply(app_message(9, 0, (1,), payload)))


# -- what the examples call a problem


def done(module: Any, execute: Callable[..., Any], *requests: tuple[list[str], dict[str, Any]]) -> ObjectStore:
    store = ObjectStore()
    for names, request in requests:
        answer_of(store.apply(operation(names, **request), execute))
    return store


def test_a_post_that_is_lost_or_of_a_stranger_is_seen() -> None:
    follow = (["a", "b"], {"follow": "a", "by": "b"})
    store = done(social, social.execute, follow, (["a", "b"], {"post": "hello", "by": "a"}))
    users = store.all()
    assert social.problems(users) == []
    assert [each["text"] for each in users["b"]["timeline"]] == ["hello"]
    lost = {**users, "b": {**users["b"], "received": 0}}
    assert "1 posts were sent to timelines, and 0 arrived" in social.problems(lost)[0]
    stranger = {**users, "b": {**users["b"], "follows": []}}
    assert "whom b does not follow" in social.problems(stranger)[0]


def test_a_post_that_does_not_name_all_followers_is_refused() -> None:
    store = done(social, social.execute, (["a", "b"], {"follow": "a", "by": "b"}))
    with pytest.raises(RefusedError, match="touches b and does not name it"):
        answer_of(store.apply(operation(["a"], post="hello", by="a"), social.execute))
    assert store.all()["a"]["posts"] == 0


def test_unfollowing_clears_the_timeline() -> None:
    store = done(
        social,
        social.execute,
        (["a", "b"], {"follow": "a", "by": "b"}),
        (["a", "b"], {"post": "hello", "by": "a"}),
        (["a", "b"], {"unfollow": "a", "by": "b"}),
    )
    assert (store.all()["b"]["timeline"], social.problems(store.all())) == ([], [])


def test_money_and_goods_that_vanish_are_seen() -> None:
    store = done(
        market,
        market.execute,
        (["account:ann"], {"deposit": 10, "to": "ann"}),
        (["goods:apples"], {"restock": "apples", "count": 5}),
        (
            ["account:ann", "account:shop", "goods:apples"],
            {"buy": "apples", "count": 2, "price": 4, "by": "ann", "of": "shop"},
        ),
    )
    objects = store.all()
    assert market.problems(objects) == []
    assert objects["account:ann"] == {"balance": 6, "deposited": 10, "has apples": 2}
    assert market.problems({**objects, "account:shop": {"balance": 3}}) == ["10 was deposited, and there is 9"]
    assert market.problems({**objects, "goods:apples": {"left": 3, "restocked": 5}})
    too_much = operation(["account:ann", "account:shop"], transfer=7, to="shop", **{"from": "ann"})
    with pytest.raises(RefusedError, match="ann has 6, and would pay 7"):
        answer_of(store.apply(too_much, market.execute))


# -- in the simulator


def random_social(rng: Random, machine: Any) -> bytes:
    """By a client that knows the network as one replica had it a moment ago."""
    author, other = rng.sample(USERS, 2)
    known = machine.users.read(author) or {"followers": []}
    match rng.randrange(6):
        case 0 | 1:
            return operation([author, other], follow=other, by=author)
        case 2:
            return operation([author, other], unfollow=other, by=author)
        case 3 | 4:
            return operation([author, *known["followers"]], post=f"{rng.random()}", by=author)
    return operation([author], timeline=author)


def random_market(rng: Random, machine: Any) -> bytes:
    one, other = rng.sample(ACCOUNTS, 2)
    goods, amount = rng.choice(GOODS), rng.randint(1, 40)
    names = [f"account:{one}", f"account:{other}"]
    match rng.randrange(5):
        case 0:
            return operation(names[:1], deposit=amount, to=one)
        case 1:
            return operation([f"goods:{goods}"], restock=goods, count=amount)
        case 2 | 3:
            return operation(names, transfer=amount, to=other, **{"from": one})
    return operation([*names, f"goods:{goods}"], buy=goods, count=2, price=amount, by=one, of=other)


FAULTS = FaultPlan(
    (
        CrashLeader(300_000, 1, 400_000),
        CutLeader(500_000, 2, 400_000),
        CrashGroup(900_000, 3, 500_000, 100_000),
        CrashLeader(1_200_000, 2, 300_000, 3),
    )
)


def run_app(make: Callable[[str], Any], draw: Callable[[Random, Any], bytes], made: Scenario, count: int) -> list[Any]:
    """The applications of all replicas, after so many operations of clients in all regions."""
    topology, rng = made.topology(), Random(made.seed)
    simulation = Simulation(made)
    machines = {process: make(f"g{topology.group_of(process)}") for process in topology.processes}
    answers: dict[int, set[bytes]] = {}

    def deliver(process: ProcessId, message: AppMessage, is_optimistic: bool) -> None:
        answers.setdefault(message.id, set()).add(machines[process].apply(message))

    def ask(client: ProcessId) -> None:
        near = topology.processes[client % len(topology.processes)]
        simulation.multicast(client, topology.groups, draw(rng, machines[near]))

    simulation.watch.listener = deliver
    simulation.start()
    for number in range(count):
        simulation.loop.at(number * 2 * SECOND // count, ask, topology.clients[number % len(topology.clients)])
    simulation.loop.run(until=2 * SECOND)
    assert simulation.settle(), "everything is delivered"
    result = simulation.result()
    assert result.broken is None
    report = check_run(result.run())
    assert report.verdict == "pass", report.violations
    assert len(answers) == count
    assert all(len(each) == 1 for each in answers.values()), "all replicas answer alike"
    assert len({bytes(machine.snapshot()) for machine in machines.values()}) == 1, "and end in one state"
    refused = sum(b'"refused"' in answer for each in answers.values() for answer in each)
    assert refused < count / 2, "and most of it was done"
    return list(machines.values())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("plan", [FaultPlan(), FAULTS], ids=["calm", "faults"])
@pytest.mark.parametrize("app", ["social", "market"])
def test_all_replicas_agree_and_nothing_is_lost(app: str, plan: FaultPlan, seed: int) -> None:
    made = scenario(
        "geopaxos",
        groups=3,
        clients=6,
        messages=0,
        plan=plan,
        seed=seed,
        options={"placement": "wandering", "moves_per_second": 1_000},
    )
    made = replace(made, paxos=replace(made.paxos, snapshot_every=20))
    if app == "social":
        machine = run_app(social.Social, random_social, made, 300)[0]
        users = machine.users.all()
        assert social.problems(users) == []
        assert sum(user["received"] for user in users.values()) > 20
    else:
        machine = run_app(market.Market, random_market, made, 300)[0]
        assert market.problems(machine.objects.all()) == []
        assert json.loads(machine.query(b"goods:apples"))["sold"] > 0
