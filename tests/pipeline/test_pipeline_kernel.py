"""The work of the tasks, without Spark: whole runs and proofs in pieces, down to segments of a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amcast.check import check_run
from amcast.pipeline import RunReport, TraceSpec, generate_trace
from amcast.pipeline._damage import DAMAGES
from amcast.pipeline._inspect import inspect_run
from amcast.pipeline.checks import _proof, _segments, _source, _tasks, checker
from amcast.pipeline.checks._tasks import Answer, Judge, Task
from amcast.pipeline.checks.checker import check_files
from amcast.sim import scenario, simulate
from amcast.trace import OPTIMISTIC, read_run, write_run
from amcast.workload import Micro
from tests.check.evidence import assert_evidence
from tests.check.traces import from_logs
from tests.pipeline.agreement import assert_same, damaged_trace, small_spec, write_damaged


class Tasks:
    """Performs tasks here and counts them."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def run(self, _: object, tasks: Sequence[Task]) -> list[Answer]:
        self.kinds += [type(task).__name__ for task in tasks]
        return [_tasks.perform(task) for task in tasks]


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    performed = Tasks()
    monkeypatch.setattr(checker, "run_tasks", performed.run)
    return performed


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_SEGMENT_ROWS", 400)
    monkeypatch.setattr(_proof, "_CHUNK_ROWS", 40)
    monkeypatch.setattr(_segments, "_BAND_ROWS", 8)


def check_one(folder: Path, whole_rows_max: int = 0) -> RunReport:
    (report,) = check_files(None, [inspect_run(str(folder))], key=7, whole_rows_max=whole_rows_max)  # type: ignore[arg-type]
    return report


def test_a_proof_passes_nothing_that_the_run_lists_as_unproven(tasks: Tasks, tmp_path: Path) -> None:
    generate_trace(tmp_path / "run", TraceSpec(deliveries=2_000, groups=3))
    described = tmp_path / "run" / "run.json"
    info = msgspec.json.decode(described.read_bytes())
    described.write_bytes(msgspec.json.encode({**info, "unproven": {"prefix": "why"}}))
    report = check_one(tmp_path / "run")
    assert "Judge" not in tasks.kinds, "the proof went through"
    assert {name for name, verdict in report.properties.items() if verdict != "pass"} == {"prefix"}
    assert report.reasons == {"prefix": "why"}


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("name", ["oam", "oam-baseline", "sequencer"])
def test_what_optimistic_protocols_claim_is_checked_alike(tmp_path: Path, name: str) -> None:
    result = simulate(scenario(name, groups=3, messages=30, workload=Micro(1, 2, 8), seed=1))
    strict = msgspec.structs.replace(result.info, extra={**result.info.extra, "senders_to": {"1": [1]}})
    for number, info in enumerate((result.info, strict)):
        folder = tmp_path / str(number)
        write_run(folder, info, result.recorder)
        report = check_one(folder)
        expected = check_run(read_run(folder))
        assert report.properties == expected.properties
        assert report.verdict == ("fail" if number and "quasi-genuine" in info.claims else "pass")
    if "local-order" in result.info.claims:
        assert report.properties["local-order"] == "pass"


@pytest.mark.usefixtures("tasks")
def test_a_guess_after_the_fact_is_found(tmp_path: Path) -> None:
    result = simulate(scenario("oam", groups=2, messages=10, seed=1))
    row = int(np.flatnonzero(result.run().deliveries.kind == OPTIMISTIC)[0])
    guess = result.run().deliveries
    late = (int(guess.process[row]), int(guess.grp[row]), 10**6, int(guess.msg[row]), OPTIMISTIC, None, 10**9)
    result.recorder.delivery(*late)
    write_run(tmp_path / "late", result.info, result.recorder)
    report, expected = check_one(tmp_path / "late"), check_run(read_run(tmp_path / "late"))
    assert report.properties == expected.properties
    assert report.properties["local-order"] == "fail"


@pytest.mark.usefixtures("tiny_pieces")
@pytest.mark.parametrize("name", [None, *DAMAGES])
def test_proofs_overlook_no_damage(tasks: Tasks, tmp_path: Path, name: str | None) -> None:
    for seed in range(2):
        folder = tmp_path / str(seed)
        spec = small_spec(seed, name)
        generate_trace(folder, spec)
        tasks.kinds.clear()
        report = check_one(folder)
        assert_same(report, folder)
        if report.verdict == "pass" and spec.stamped:
            assert "Judge" not in tasks.kinds


@pytest.mark.usefixtures("tiny_pieces")
def test_good_runs_are_proved_in_many_segments(tasks: Tasks, tmp_path: Path) -> None:
    """Also with hundreds of messages in flight at every moment, and with a hundred groups."""
    for groups, stamped, in_flight_us in ((8, True, 150_000), (8, False, 150_000), (100, False, 2_000)):
        folder = tmp_path / f"{groups}-{stamped}"
        spec = TraceSpec(deliveries=12_000, groups=groups, stamped=stamped, in_flight_us=in_flight_us, rate=4_000)
        generate_trace(folder, spec)
        tasks.kinds.clear()
        assert_same(check_one(folder), folder)
        assert "Judge" not in tasks.kinds
        assert tasks.kinds.count("ProveStamped" if stamped else "ProveUnstamped") > 5


@pytest.mark.usefixtures("tasks", "tiny_pieces")
def test_damaged_runs_with_and_without_proofs(tmp_path: Path) -> None:
    write_damaged(tmp_path, range(5000, 5030))
    for folder in sorted(tmp_path.iterdir()):
        for whole_rows_max in (0, 1_000_000):
            assert_same(check_one(folder, whole_rows_max), folder)


def test_a_corrupt_page_gives_no_verdict(tasks: Tasks, tmp_path: Path) -> None:
    generate_trace(tmp_path / "run", TraceSpec(deliveries=50_000, groups=2))
    run = inspect_run(str(tmp_path / "run"))
    file = Path(run.table("deliveries")[0].path)
    content = bytearray(file.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 64] = bytes(64)
    file.write_bytes(content)
    for whole_rows_max in (0, 1_000_000):
        (report,) = check_files(None, [run], whole_rows_max=whole_rows_max)  # type: ignore[arg-type]
        assert set(report.properties.values()) == {"unknown"}
        assert file.name in report.reasons["acyclic"]


def test_one_bad_run_leaves_the_others_alone(tmp_path: Path) -> None:
    for name in ("one", "other"):
        generate_trace(tmp_path / name, TraceSpec(deliveries=500, groups=2, run_id=name))
    runs = [inspect_run(str(tmp_path / name)) for name in ("one", "other")]
    Path(runs[0].table("multicasts")[0].path).unlink()
    answer = _tasks.perform(Judge(runs))
    assert [judged.report is None for judged in answer.judged] == [True, False]


def recut(table: Path, rng: Random) -> None:
    """The rows of a table as another program might write them: in any order, in several files, in small row groups."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(table.iterdir())])
    for file in table.iterdir():
        file.unlink()
    order = list(range(len(rows)))
    rng.shuffle(order)
    parts = rng.randint(1, 3)
    for part in range(parts):
        pq.write_table(
            rows.take(pa.array(order[part::parts], pa.int64())),
            table / f"{part}.parquet",
            row_group_size=rng.randint(1, 9),
        )


@pytest.mark.usefixtures("tasks")
def test_it_does_not_matter_how_files_are_cut(tmp_path: Path) -> None:
    for seed in range(6000, 6040):
        trace = damaged_trace(seed)
        folder = tmp_path / str(seed)
        write_run(folder, trace.info(), trace.recorder())
        for name in ("multicasts", "deliveries"):
            recut(folder / name, Random(seed))
        assert_same(check_one(folder, whole_rows_max=1 << 30), folder)


@pytest.mark.usefixtures("tasks")
def test_a_wire_that_is_read_in_parts_is_judged_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_source, "_WIRE_ROWS", 1)
    parts = 0
    gossip = from_logs({1: (1,), 2: (2,)}, {1: [1], 2: [2]})
    gossip.claims = ("genuine",)
    gossip.wire = [(0, 1, "GOSSIP", None, at, at + 1) for at in range(10)]
    for number, trace in enumerate([gossip, *map(damaged_trace, range(6000, 6040))]):
        folder = tmp_path / str(number)
        write_run(folder, trace.info(), trace.recorder())
        for file in (folder / "wire").glob("*.parquet"):
            pq.write_table(pq.read_table(file), file, row_group_size=3)
            parts = max(parts, pq.read_metadata(file).num_row_groups)
        run, report = read_run(folder), check_one(folder, whole_rows_max=1 << 30)
        assert report.properties == check_run(run).properties
        for at, found in enumerate(report.violations):
            assert_evidence(run, found)
            # Rows about no message are judged once for each pair of ends, also if these speak again in a later part.
            assert found.messages or found not in report.violations[:at]
    assert parts > 5


@pytest.mark.usefixtures("tasks")
def test_claims_weaker_than_genuineness_agree(tmp_path: Path) -> None:
    verdicts = set()
    idle = from_logs({1: (1, 3), 2: (3,)}, {1: [1], 3: [1, 2]})
    idle.wire = [(0, 1, "NOTIF", 1, 0, 10), (0, 2, "RELAY", 2, 0, 10)]
    for number, trace in enumerate([idle, *map(damaged_trace, range(40))]):
        trace.claims = ("minimality", "partially-genuine")
        folder = tmp_path / str(number)
        write_run(folder, trace.info(), trace.recorder())
        report = check_one(folder, whole_rows_max=1 << 30)
        assert_same(report, folder)
        verdicts |= {(name, report.properties[name]) for name in trace.claims}
    assert verdicts >= {(name, verdict) for name in ("minimality", "partially-genuine") for verdict in ("pass", "fail")}
