"""Ids print in one form everywhere, and what is printed can be given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amcast.check._messages import MessageIndex
from amcast.check.source import source_of
from amcast.core import UsageError, client_name, grid, message_id, message_name, message_named
from amcast.core.ids import CLIENT_ID_LIMIT, SEQ_LIMIT
from amcast.pipeline.stream.reporter import Reporter
from amcast.pipeline.stream.state import WatchState
from amcast.sim import scenario, simulate
from amcast.trace import process_name

IDS = st.builds(message_id, st.integers(0, CLIENT_ID_LIMIT - 1), st.integers(0, SEQ_LIMIT - 1))


@given(IDS)
def test_the_name_of_a_message_is_read_back(message: int) -> None:
    assert message_named(message_name(message)) == message
    assert message_named(str(message)) == message


def test_the_form_of_names() -> None:
    assert message_name(message_id(12, 7)) == "m12.7"
    assert message_name(7) == "m7"
    assert client_name(12) == "c12"
    assert message_named("12.7") == message_id(12, 7)


@pytest.mark.parametrize("name", ["", "m", "c12", "m12.", "m1.2.3", "m-1", f"m{1 << 63}", f"m1.{SEQ_LIMIT}", "m\u0661"])
def test_what_is_no_message(name: str) -> None:
    with pytest.raises(UsageError, match="is no message: give its name"):
        message_named(name)


def test_processes_and_clients_have_one_name_everywhere() -> None:
    result = simulate(scenario("fastcast", groups=2, messages=3, seed=1))
    topology = grid(2, 3, 1)
    index = MessageIndex(source_of(result.run()))
    reporter = Reporter(result.info, WatchState("run"))
    for process in (*topology.processes, *topology.clients, 16_777_216):
        known = process in topology.processes or process in topology.clients
        name = topology.name(process) if known else client_name(process)
        assert name == process_name(result.info, process) == index.name(process) == reporter.name(process)
