"""Recorded workloads: from CSV and from runs, at their times, and what is wrong with files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from amcast.cli._replay import read_replay
from amcast.core import UsageError, grid
from amcast.sim import Scenario, scenario, simulate
from amcast.trace import write_run
from amcast.workload import Micro, Replay, Seat
from amcast.workload.replay import parse_replay
from tests.cli.cli_harness import Cli

TEXT = "time_us,destinations,bytes\n4000,g1 g2,10\n\n1000,g2,0\n9000, g1 ,300\n"


def test_messages_are_replayed_in_the_order_of_their_times() -> None:
    made = parse_replay(TEXT, "a.csv")
    assert made.messages == ((0, 1, 0), (3_000, 0, 10), (8_000, 2, 300))
    assert made.destinations == ((1, 2), (2,), (1,))
    assert made.places == (2, 4, 5)
    assert made.length == 3


def test_messages_are_dealt_out_to_the_clients() -> None:
    made = parse_replay(TEXT, "a.csv")
    geography = made.geography(grid(2, 1, 2), None)
    first, second = (made.stream(geography, Seat(number, 2), msgspec.UNSET) for number in (0, 1))  # type: ignore[arg-type]
    assert (first.due_us(), first.draw(1)) == (0, [((2,), b"")])
    assert (first.due_us(), first.draw(1)) == (8_000, [((1,), bytes(300))])
    assert (second.due_us(), second.draw(1)) == (3_000, [((1, 2), bytes(10))])


@pytest.mark.parametrize("speed", [1.0, 2.0])
def test_a_run_is_replayed_at_its_times(speed: float, tmp_path: Path) -> None:
    """On another protocol: destinations, sizes and the time between messages are those of the first run."""
    micro = Micro(1, 3, 40, own_stream=True)
    first = simulate(scenario("skeen", groups=3, clients=3, messages=50, interval_us=5_000, workload=micro, seed=4))
    write_run(tmp_path / "run", first.info, first.recorder)
    workload = msgspec.structs.replace(read_replay(tmp_path / "run"), speed=speed)
    second = simulate(scenario("fastcast", groups=3, clients=7, messages=50, workload=workload, seed=9))
    assert second.complete
    one, other = first.run().multicasts, second.run().multicasts
    assert (other.t_us - other.t_us[0]).tolist() == ((one.t_us - one.t_us[0]) / speed).astype(int).tolist()
    assert sorted(other.bytes.tolist()) == sorted(one.bytes.tolist())
    assert sorted(other.dst.tolist()) == sorted(one.dst.tolist())


def test_a_scenario_keeps_what_it_replays() -> None:
    made = scenario("skeen", groups=2, clients=1, messages=3, workload=parse_replay(TEXT, "a.csv"))
    again = msgspec.json.decode(msgspec.json.encode(made), type=Scenario)
    assert again == made
    assert simulate(again).info.run_id == made.run_id()


def test_without_times_it_is_a_closed_loop() -> None:
    workload = msgspec.structs.replace(parse_replay(TEXT, "a.csv"), timed=False)
    result = simulate(scenario("skeen", groups=2, clients=1, messages=3, workload=workload))
    assert result.complete
    assert result.run().multicasts.t_us.max() < 1_000


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a.csv: line 1 must be time_us,destinations,bytes"),
        ("time,dst\n", "a.csv: line 1 must be"),
        ("time_us,destinations,bytes\n", "a.csv has no message"),
        ("time_us,destinations,bytes\n1,g1\n", "a.csv: line 2 has 2 fields instead of 3"),
        ("time_us,destinations,bytes\n1,g1,5\n-2,g1,5\n", "a.csv: line 3: time_us '-2' is no number"),
        ("time_us,destinations,bytes\nsoon,g1,5\n", "a.csv: line 2: time_us 'soon' is no number"),
        ("time_us,destinations,bytes\n1,g1,5000000\n", "a.csv: line 2: bytes '5000000' is no number"),
        ("time_us,destinations,bytes\n1,,5\n", "a.csv: line 2: destinations: name one group or more"),
        ("time_us,destinations,bytes\n1,g1 g1,5\n", "a.csv: line 2: destinations: name one group or more, none twice"),
        ("time_us,destinations,bytes\n1,west,5\n", "a.csv: line 2: destinations: 'west' is no group"),
        ('time_us,destinations,bytes\n1,"g1,5\n', "a.csv: line 2: "),
    ],
)
def test_bad_files_are_refused_by_line(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_replay(text, "a.csv")
    assert str(caught.value).startswith(says)


def test_groups_that_do_not_exist_are_refused_by_line() -> None:
    made = parse_replay("time_us,destinations,bytes\n1,g1,5\n\n2,g2 g7,5\n", "a.csv")
    with pytest.raises(UsageError, match=r"a\.csv: line 4: there is no group g7"):
        made.check(grid(3, 1, 1))


def test_the_command_line_replays(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(TEXT)
    options = ("sim", "-p", "skeen", "--clients", 2, "--workload", f"replay:{file}")
    done = cli(*options, "-w", "speed=4", "--json")
    assert done.code == 0
    assert done.json["messages"] == 3  # all that there are
    assert done.json["workload"] == f"replay of {file} at speed 4"
    assert "there are 3 messages to replay, not 5" in cli.refuses(*options, "--messages", 5)
    assert "a replay has no option 'pace'" in cli.refuses(*options, "-w", "pace=2")
    assert "speed of 0 is none" in cli.refuses(*options, "-w", "speed=0")
    assert "for the workload micro" in cli.refuses(*options, "--destinations", 2)
    assert "can't read" in cli.refuses("sim", "--workload", f"replay:{tmp_path / 'none.csv'}")
    assert "there is no workload 'tpce'" in cli.refuses("sim", "--workload", "tpce")
    assert "not an option of the workload gtpcc" in cli.refuses("sim", "--workload", "gtpcc", "-w", "users=3")


def test_titles_tell_how() -> None:
    made = parse_replay(TEXT, "a.csv")
    assert made.title() == "replay of a.csv in time"
    assert Replay("b", ((1,),), (1,), ((0, 0, 0),), timed=False).title() == "replay of b"
