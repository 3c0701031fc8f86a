"""Small scenarios that once went wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.core import BadFrameError, UsageError
from amcast.protocols import PROTOCOLS
from amcast.sim import FaultPlan, scenario, simulate
from amcast.sim.faults import Crash, Pause
from amcast.workload import Micro
from tests.cli.cli_harness import Cli


def test_bytes_that_are_no_text_are_refused_like_any_other_garbage() -> None:
    codec = PROTOCOLS["fastcast"].codec()
    with pytest.raises(BadFrameError):
        codec.decode_message(b"\x92\xa2\xff\xff")
    with pytest.raises(BadFrameError):
        codec.decode_record(b"\x92\xa2\xff\xff")


@pytest.mark.parametrize(
    "plan",
    [
        b'{"faults":[{"what":"partition","at_us":0,"side":[],"for_us":10}]}',
        b'{"faults":[{"what":"crash\xff","at_us":0}]}',
        b'{"faults":[{"what":"skew","at_us":0,"process":0,"offset_us":0,"drift":-1.0}]}',
        b'{"faults":[{"what":"reorder","at_us":300,"probability":0.5,"delay_us":-100,"for_us":1000}]}',
        b'{"faults":[{"what":"loss","at_us":1,"probability":7.0,"for_us":5}]}',
        b'{"faults":[{"what":"loss","at_us":1,"probability":0.5,"for_us":-5}]}',
        b'{"faults":[{"what":"pause","at_us":-300,"process":1,"for_us":100}]}',
        b'{"faults":[{"what":"pause","at_us":3,"process":99,"for_us":100}]}',
        b'{"faults":[{"what":"crash-leader","at_us":3,"group":9,"down_us":100}]}',
        b'{"faults":[{"what":"crash","at_us":1000,"process":6,"down_us":100}]}',
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, plan: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_bytes(plan)
    Cli(monkeypatch, capsys).refuses("sim", "--messages", 10, "--plan", "plan.json")


def test_a_client_can_not_restart_since_it_would_use_its_ids_again() -> None:
    with pytest.raises(UsageError, match="can't restart"):
        scenario("fastcast", messages=30, plan=FaultPlan((Crash(1_000, 6, 500),)))


def test_a_client_that_crashes_while_sending_multicasts_nothing_after_that() -> None:
    plan = FaultPlan((Crash(300, 6, None, 1),))
    run = simulate(scenario("fastcast", clients=1, messages=60, outstanding=6, seed=58, plan=plan)).run()
    starts = run.wire.kind == run.wire.kinds.index("START")
    never_sent = set(run.multicasts.msg.tolist()) - set(run.wire.msg[starts].tolist())
    assert len(never_sent) <= 1  # the one it was about to send


def test_a_process_that_restarts_is_no_longer_paused() -> None:
    plan = FaultPlan((Pause(0, 0, 10_000_000), Crash(20_000, 0, 10_000)))
    made = scenario("skeen", groups=1, clients=1, messages=1, interval_us=1, workload=Micro(1, 1), plan=plan)
    assert simulate(made).run().deliveries.t_us.max() < 10_000_000
