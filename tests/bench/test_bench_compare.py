"""A comparison with an earlier commit: ratios are of rounds, both clusters run and end, and a wrong commit is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.cluster._jobs import Shape
from bench.compare import Load, main, ratio, rows_of, source_of


def test_a_ratio_is_the_median_of_the_rounds_with_quartiles() -> None:
    assert ratio([1.0, 9.0, 30.0, 4.0, 50.0], [1.0, 3.0, 10.0, 2.0, 10.0]) == (3.0, 2.0, 3.0)
    assert ratio([3.0], [4.0]) == (0.75, 0.75, 0.75)


def test_rows_have_the_ratio_of_rates_and_of_cpu_time() -> None:
    (row,) = rows_of({Shape(64, 16): [(Load(900.0, 11.0), Load(1_000.0, 10.0))]})
    assert row["shape"] == "64 x 16"
    assert row["rate"] == (0.9, 0.9, 0.9)
    assert row["cpu"] == (1.1, 1.1, 1.1)
    assert row["rates"] == [900.0, 1_000.0]


def test_the_source_of_a_commit_is_there_and_then_gone() -> None:
    with source_of("HEAD") as folder:
        assert (folder / "src" / "amcast" / "__init__.py").is_file()
    assert not folder.exists()


def test_a_commit_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-commit"]) == 1
    assert "no-such-commit" in capsys.readouterr().err


@pytest.mark.slow
def test_both_versions_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert main(["HEAD", "--shapes", "1x1,2x4", "--rounds", "2", "--seconds", "0.1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["shape"] for row in rows] == ["1 x 1", "2 x 4"]
    for row in rows:
        assert all(figure > 0 for name in ("rate", "cpu", "rates") for figure in row[name])
    assert not list(tmp_path.iterdir())  # the clusters, in folders of their own, have ended
