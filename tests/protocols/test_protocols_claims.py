"""What each protocol says of itself, measured."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from amcast.check import check_run
from amcast.consensus import PaxosMessage
from amcast.consensus.multipaxos import messages as paxos
from amcast.core import BadFrameError, UsageError, encode
from amcast.protocols import (
    ORDER,
    PROTOCOLS,
    SAMPLE,
    ClientMessage,
    Reply,
    Start,
    StreamAck,
    markdown_table,
    protocol,
)
from amcast.protocols._spec import EXECUTION
from amcast.sim import scenario, simulate
from amcast.sim.faults import BYZANTINE, KINDS
from amcast.sim.fuzz import fuzz_scenario, violations_of
from amcast.sim.hops import measure_hops
from amcast.trace import Run
from amcast.workload import Micro

# -- message delays


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("name", PROTOCOLS)
def test_message_delays_are_as_claimed_with_any_number_of_groups(name: str, groups: int) -> None:
    measured = measure_hops(protocol(name), groups)
    assert {hops.case: hops.delays for hops in measured} == protocol(name).delays


@pytest.mark.parametrize("name", ["byzcast", "bft"])
def test_with_three_phases_byzantine_groups_take_a_delay_more_each(name: str) -> None:
    """The published way, and safe under all faults and liars too."""
    latency = {}
    for two_phases in (True, False):
        made = scenario(name, "unit", groups=2, messages=1, workload=Micro(2, 2), seed=1)
        run = simulate(replace(made, options={"two_phases": two_phases})).run()
        assert check_run(run).verdict == "pass"
        latency[two_phases] = max(run.deliveries.t_us) - min(run.multicasts.t_us)
    assert latency[False] * 3 == latency[True] * 4
    for seed in range(6):
        made = fuzz_scenario(name, seed, (*KINDS, BYZANTINE))
        made = replace(made, options={**made.options, "two_phases": False})
        assert violations_of(simulate(made)) == (), f"seed {seed}"


# -- genuineness


def with_claims(run: Run, *claims: str) -> Run:
    return dataclasses.replace(run, info=replace(run.info, claims=claims))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_is_genuine_if_it_says_so(name: str) -> None:
    """ "Not genuine: the ordering group works for every message, and all processes learn all of them." """
    run = simulate(scenario(name, groups=4, messages=40, workload=Micro(1, 2), seed=2)).run()
    claims = protocol(name).claims
    report = check_run(with_claims(run, *claims, "genuine"))
    # Operations are addressed to all groups: there is nobody else to take steps.
    is_genuine = "genuine" in claims or protocol(name).orders_operations
    assert report.properties["genuine"] == ("pass" if is_genuine else "fail")
    assert report.verdict == report.properties["genuine"]
    assert check_run(run).verdict == "pass"


# -- the registry


SHARED = (
    Start((SAMPLE,)),
    Reply((1, 2), (SAMPLE.id,)),
    StreamAck(1, 5),
    paxos.Prepare(1, 2, 3),
    paxos.Promise(1, 2, 3, 4, (paxos.Vote(1, 2, b"v"),)),
    paxos.Accept(1, 2, 3, b"v"),
    paxos.Accepted(1, 2, 3),
    paxos.Nack(1, 2),
    paxos.Heartbeat(1, 2, 3, 4),
    paxos.HeartbeatAck(1, 2, 3),
    paxos.CatchUp(1, 2),
    paxos.Learn(1, 2, (b"v", b"")),
    paxos.State(1, 2, {1: 5}, b"s"),
    paxos.Rejoin(1, 2),
    paxos.Outdated(1, 2),
    paxos.Readmission(1, 2, 3, 4),
    paxos.ReadIndex(1, 2),
    paxos.Confirm(1, 2, 3),
    paxos.Confirmed(1, 2, 3),
    paxos.ReadAt(1, 2, 3),
)


def kinds(union: Any) -> set[type]:
    return set(get_args(union) or (union,))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_message_of_a_protocol_crosses_its_codec(name: str) -> None:
    spec = protocol(name)
    codec = spec.codec()
    crossed = set()
    for message in (*spec.samples, *SHARED):
        if type(message) in kinds(PaxosMessage | ClientMessage | spec.messages):
            decoded = codec.decode_message(encode(message))
            assert decoded == message
            assert decoded.about() == message.about()
            crossed.add(type(decoded))
    assert crossed == kinds(PaxosMessage | ClientMessage | spec.messages), "its SPEC has a sample of each"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_refuses_the_messages_of_another(name: str) -> None:
    own = kinds(PaxosMessage | ClientMessage | protocol(name).messages)
    foreign = [message for spec in PROTOCOLS.values() for message in spec.samples if type(message) not in own]
    assert foreign
    for message in foreign:
        with pytest.raises(BadFrameError):
            protocol(name).codec().decode_message(encode(message))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocols_line_in_the_registry_is_whole(name: str) -> None:
    spec = protocol(name)
    assert spec.name == name
    assert {"local", "global"} <= set(spec.delays)
    assert set(spec.cases) <= set(spec.delays)
    assert set(EXECUTION if spec.orders_operations else ORDER) <= set(spec.claims)
    assert spec.replicas in spec.fuzz_replicas
    for options in spec.cases.values():
        spec.config(**options)
    assert f"| `{name}` |" in markdown_table()


def test_an_unknown_protocol_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=f"no protocol 'nope': choose one of {', '.join(PROTOCOLS)}"):
        protocol("nope")
