"""Generated traces are what they say: right unless told otherwise, the same for the same seed, as large as asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from amcast.check import check_run
from amcast.core import UsageError
from amcast.pipeline import TraceSpec, generate_trace
from amcast.pipeline._damage import DAMAGES
from amcast.trace import Run, read_run

# What must fail, whatever else does.
BREAKS = {
    "swap-replica": "replicas",
    "swap-groups": "prefix",
    "lose-replica": "replicas",
    "lose-group": "agreement",
    "duplicate": "integrity",
    "wrong-destination": "integrity",
    "unknown": "integrity",
    "gap": "positions",
    "cycle3": "acyclic",
    "cycle4": "acyclic",
    "cycle5": "acyclic",
    "cycle6": "acyclic",
    "tail": "replicas",
    "forged": "timestamps",
}


def generated(folder: Path, spec: TraceSpec) -> Run:
    generate_trace(folder, spec)
    return read_run(folder)


@pytest.mark.parametrize("destinations", [1, 2, 4])
def test_traces_are_right_and_of_the_size_asked_for(tmp_path: Path, destinations: int) -> None:
    spec = TraceSpec(deliveries=10_000, groups=8, destinations=destinations, skew=1.0, claims=("fifo", "timestamps"))
    run = generated(tmp_path / "run", spec)
    assert check_run(run).verdict == "pass"
    assert len(run.deliveries) == pytest.approx(10_000, rel=0.1)


@pytest.mark.parametrize("name", DAMAGES)
def test_damages_break_what_they_say(tmp_path: Path, name: str) -> None:
    for seed in range(2):
        spec = TraceSpec(deliveries=1_500, groups=8, seed=seed, damages=(name,), chunk_messages=100)
        report = check_run(generated(tmp_path / str(seed), spec))
        assert report.properties[BREAKS[name]] == "fail"
        if name.startswith("cycle"):
            assert report.properties["prefix"] == "pass"
            lengths = {len(found.messages) for found in report.violations if found.property == "acyclic"}
            assert lengths == {int(name.removeprefix("cycle"))}


def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("one", "other"):
        generate_trace(tmp_path / name, TraceSpec(deliveries=2_000, seed=5))
    files = [sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("one", "other")]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]


def test_misuse_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="swap-replica"):
        generate_trace(tmp_path / "run", TraceSpec(damages=("nonsense",)))
    (tmp_path / "taken").touch()
    with pytest.raises(UsageError, match="exists and is not a folder"):
        generate_trace(tmp_path / "taken", TraceSpec())
    with pytest.raises(UsageError, match="is not empty"):
        generate_trace(tmp_path, TraceSpec())


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_trace_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        assert list(tmp_path.rglob("*.parquet")), "it stops in the middle of the tables"
        raise error

    monkeypatch.setattr("amcast.pipeline.tracegen.encode_run_info", fail)
    with pytest.raises(UsageError if error is OSError else error):
        generate_trace(tmp_path / "some" / "where", TraceSpec(deliveries=1_000))
    assert not list(tmp_path.iterdir())
