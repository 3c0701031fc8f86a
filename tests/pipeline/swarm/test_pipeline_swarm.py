"""A swarm says what the same seeds say without Spark, brings counterexamples back, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from amcast.core import UsageError
from amcast.pipeline.swarm import Cell, Plan, SwarmSpec, make_cells, make_plan, probe_cell, run_swarm
from amcast.pipeline.swarm.drivers import driver_of, runner
from amcast.pipeline.swarm.plan import COUNTS, NODE
from amcast.pipeline.swarm.store import SwarmStore, WaveResult
from amcast.pipeline.swarm.task import run_chunk
from amcast.sim import Scenario
from amcast.sim.faults import KINDS
from amcast.sim.fuzz import fuzz_one, fuzz_scenario, violations_of

SPEC = SwarmSpec((Cell("skeen"), Cell("fastcast", "none", groups=2)), seeds=11, first_seed=5)
PLAN = Plan(SPEC, (4, 3), 2)  # 3 + 4 chunks, 4 waves
MUTANT = "tests.pipeline.swarm.variants:duplicate_twice"


class StopError(Exception):
    pass


# ---------------------------------------------------------------------------------------------- without Spark


def test_every_seed_of_every_cell_is_in_one_chunk() -> None:
    for plan in (PLAN, Plan(SPEC, (100, 1), 3), make_plan(SPEC, [0.01, 0.5], 2)):
        seeds = [
            (chunk.cell, seed)
            for wave in plan.waves()
            for chunk in wave
            for seed in range(chunk.first_seed, chunk.first_seed + chunk.seeds)
        ]
        assert sorted(seeds) == [(cell, seed) for cell in (0, 1) for seed in range(5, 16)]
        assert {chunk.cell for chunk in plan.waves()[0]} == {0, 1}, "a swarm that is stopped has seen all cells"


def test_a_task_has_five_seconds_of_work_unless_cores_would_be_idle() -> None:
    spec = SwarmSpec((Cell("skeen"), Cell("fastcast")), seeds=10_000)
    assert make_plan(spec, [0.01, 0.05], 2).chunk_seeds == (500, 100)
    few = SwarmSpec((Cell("fastcast"),), seeds=120)
    assert make_plan(few, [0.1], 4).chunk_seeds == (15,)


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(UsageError, match="named twice"):
        make_cells(["skeen"], ["all", "all"])
    with pytest.raises(UsageError, match="odd number"):
        probe_cell(Cell("fastcast", replicas=4), 0, lambda: 0.0)
    with pytest.raises(UsageError, match="no fault 'fire'"):
        probe_cell(Cell("fastcast", faults="fire"), 0, lambda: 0.0)
    with pytest.raises(UsageError, match="no_such"):
        runner("tests.pipeline.swarm.variants:no_such")


def test_the_replay_command_names_the_whole_cell() -> None:
    cell = Cell("basecast", "crash,loss", 5, 2)
    wanted = "amcast fuzz --protocol basecast --seeds 1 --first-seed 7 --faults crash,loss --replicas 5 --groups 2"
    assert cell.replay(7) == wanted


def test_a_folder_of_another_swarm_is_refused(tmp_path: Path) -> None:
    store = SwarmStore(tmp_path / "swarm")
    assert store.plan(SPEC) is None
    assert store.begin(PLAN) == {}
    assert store.plan(SPEC) == PLAN
    with pytest.raises(UsageError, match=r"other parameters .seeds 11, not 12"):
        store.plan(msgspec.structs.replace(SPEC, seeds=12))
    with pytest.raises(UsageError, match=r"other parameters .2 cells"):
        store.plan(msgspec.structs.replace(SPEC, cells=SPEC.cells[:1]))
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    with pytest.raises(UsageError, match="is not the folder of a swarm"):
        SwarmStore(tmp_path / "else").plan(SPEC)
    (tmp_path / "swarm" / "waves" / "wave-000001.parquet").write_bytes(b"half")
    with pytest.raises(UsageError, match="not a whole file"):
        store.begin(PLAN)


def test_a_task_keeps_a_few_findings_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amcast.pipeline.swarm.task.FOUND_MAX", 1)
    monkeypatch.setattr("amcast.pipeline.swarm.task.SHRINK_TRIES", 3)
    spec = SwarmSpec((Cell("fastcast"),), seeds=6, variant=MUTANT)
    rows = run_chunk(spec, Plan(spec, (6,), 1).chunks()[0]).to_pylist()
    assert rows[0]["schedules"] == 6
    assert rows[0]["violations"] > 1
    assert len(rows) == 2


# ------------------------------------------------------------------------------------------------- with Spark


def local_totals(cell: Cell) -> list[int]:
    kinds = KINDS if cell.faults == "all" else ()
    results = [fuzz_one(fuzz_scenario(cell.protocol, seed, kinds, groups=cell.groups)) for seed in range(5, 16)]
    assert not any(result.finding for result in results)
    names = ("messages", "deliveries", "wire_messages", "faults")
    return [len(results), *(sum(getattr(result, name) for result in results) for name in names), 0]


def test_a_stopped_swarm_goes_on_and_says_what_the_seeds_say_locally(swarm_spark: SparkSession, tmp_path: Path) -> None:
    waves = 0

    def stop_after_two(result: WaveResult) -> None:
        nonlocal waves
        waves += 1
        if waves == 2:
            raise StopError

    out = tmp_path / "swarm"
    with pytest.raises(StopError):
        run_swarm(swarm_spark, PLAN, out, stop_after_two)
    assert len(list((out / "waves").iterdir())) == 2
    result = run_swarm(swarm_spark, PLAN, out)
    assert result.resumed == 2
    assert result.violations == 0
    for totals, cell in zip(result.cells, SPEC.cells, strict=True):
        assert [getattr(totals, name) for name in COUNTS] == local_totals(cell)
    again = run_swarm(swarm_spark, PLAN, out)
    assert (again.cells, again.resumed) == (result.cells, 4)


def test_whole_nodes_swarm_too(swarm_spark: SparkSession) -> None:
    cell = Cell("fastcast", "kill,power-loss", groups=1, driver=NODE)
    result = run_swarm(swarm_spark, Plan(SwarmSpec((cell,), seeds=4), (2,), 2))
    driver = driver_of(cell)
    alone = [driver.fuzz(driver.draw(cell, seed)) for seed in range(4)]
    totals = result.cells[0]
    assert (totals.schedules, totals.violations) == (4, 0)
    assert (totals.deliveries, totals.faults) == (sum(r.deliveries for r in alone), sum(r.faults for r in alone))
    assert totals.faults > 0
    assert "--driver node" in cell.replay(3)


def test_a_violation_comes_back_shrunk_with_its_scenario(swarm_spark: SparkSession, tmp_path: Path) -> None:
    spec = SwarmSpec((Cell("fastcast"),), seeds=2, variant=MUTANT)
    result = run_swarm(swarm_spark, Plan(spec, (1,), 2), tmp_path / "swarm")
    assert result.violations >= 1
    assert result.found
    run = runner(MUTANT)
    first = result.found[0]
    assert first.property in ("integrity", "invariant")  # who sees it first depends on the schedule
    whole = msgspec.convert(first.scenario, Scenario)
    assert whole == fuzz_scenario("fastcast", first.seed, KINDS)
    small = msgspec.convert(first.shrunk, Scenario)
    assert small.messages < whole.messages
    assert violations_of(run(small))[0].explanation == first.explanation
    file = SwarmStore(tmp_path / "swarm").scenario_file(spec, first)
    assert msgspec.json.decode(file.read_bytes(), type=Scenario) == small


def test_a_task_that_fails_is_one_line(swarm_spark: SparkSession) -> None:
    spec = SwarmSpec((Cell("fastcast"),), seeds=1, variant="tests.pipeline.swarm.variants:no_such")
    with pytest.raises(UsageError, match="no_such") as caught:
        run_swarm(swarm_spark, Plan(spec, (1,), 1))
    assert "\n" not in str(caught.value)
