"""Where numbers say at which group a message enters, clients use the numbers of that group, and no others are taken."""

from __future__ import annotations

from random import Random

import pytest

from amcast.core import AppMessage, Topology, grid, message_id, pack, unpack
from amcast.core.ids import UNSETTLED_MAX
from amcast.protocols import Client, ClientConfig, Start, protocol
from amcast.protocols._entry_numbers import DEALT, is_number_of, next_number

SPEC = protocol("byzcast")
TOPOLOGY = grid(3, 4, clients=1)
CLIENT = TOPOLOGY.clients[0]


def client(topology: Topology = TOPOLOGY) -> Client:
    return Client(
        topology.clients[0], topology, SPEC.ingress_groups, ClientConfig(), fears_liars=True, numbers_by_entry=True
    )


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
def test_each_number_belongs_to_one_group(groups: int) -> None:
    topology = grid(groups, 4, clients=1)
    for seq in range(4 * DEALT * groups):
        message = AppMessage(message_id(5, seq), (1,), b"")
        owners = [group for group in topology.groups if is_number_of(message, group, topology)]
        assert len(owners) == 1 or groups == 1
        assert [group for group in topology.groups if next_number(seq, group, topology) == seq] == owners
        for group in topology.groups:
            found = next_number(seq, group, topology)
            assert seq <= found < seq + DEALT * groups
            assert is_number_of(AppMessage(message_id(5, found), (1,), b""), group, topology)


def test_a_batch_belongs_to_a_group_if_all_that_is_in_it_does() -> None:
    def batch(*seqs: int) -> AppMessage:
        return pack([AppMessage(message_id(5, seq), (1,), b"") for seq in seqs])

    assert is_number_of(batch(5, 6, 7), 1, TOPOLOGY)
    assert is_number_of(batch(5, 7, 3 * DEALT), 1, TOPOLOGY)
    assert not is_number_of(batch(6, 7, 8), 1, TOPOLOGY)
    assert not is_number_of(batch(6, 7, 8), 2, TOPOLOGY)
    assert not is_number_of(batch(5, DEALT, 3 * DEALT), 1, TOPOLOGY)


def test_a_client_numbers_its_messages_so_that_they_are_taken() -> None:
    rng, sender, last = Random(1), client(), -1
    for _ in range(300):
        wanted = [(tuple(rng.sample(TOPOLOGY.groups, rng.randint(1, 3))), b"x") for _ in range(rng.randint(1, 5))]
        made = sender.new_messages(wanted)
        assert [message.dst for message in made] == [tuple(sorted(dst)) for dst, _ in wanted]
        for message in made:
            assert message.seq > last
            last = message.seq
            if last < UNSETTLED_MAX:
                assert SPEC.problem_with(CLIENT, Start((message,)), TOPOLOGY) is None
    assert last < 300 * 5 * DEALT * len(TOPOLOGY.groups)


def test_with_one_group_no_number_is_left_out() -> None:
    sender = client(grid(1, 4, clients=1))
    assert [sender.new_message((1,), b"").seq for _ in range(3 * DEALT)] == [*range(3 * DEALT)]


def test_a_message_with_a_number_of_another_group_is_refused_with_the_reason() -> None:
    [message] = unpack(AppMessage(message_id(CLIENT, 3), (2,), b""))
    problem = SPEC.problem_with(CLIENT, Start((message,)), TOPOLOGY)
    assert problem == "message 3 can't enter at g2: its number, or one in its batch, is another group's"
