"""docs/trace-format.md is made from the schema, and its example runs as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from amcast.check.report import PROPERTIES
from amcast.pipeline.foreign.settle import Declared
from amcast.trace.document import example_text, schema_page
from amcast.trace.schema import FIELDS, FORMAT, RunInfo, decode_run_info
from tests.cli.cli_harness import Cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "trace-format.md"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(match[2] or "", match[3]) for match in FENCE.finditer(PAGE.read_text()) if match[1] == language]


def test_the_page_is_the_generated_one(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(schema_page())
    assert PAGE.read_text() == schema_page(), "docs/trace-format.md is out of date: pytest tests/docs --rewrite"


def test_everything_is_described() -> None:
    assert set(FIELDS) == set(RunInfo.__struct_fields__) - {"extra"}
    assert all(column.meaning for table in FORMAT for column in table.columns)
    text = PAGE.read_text()
    for name in PROPERTIES:
        assert f"| `{name}` |" in text


def test_run_json_by_example_is_one_and_so_is_what_can_be_declared() -> None:
    assert decode_run_info(example_text().encode()).extra == {"version": "7.1"}
    run, about = (text for _, text in blocks("json"))
    assert run.strip() == example_text()
    assert msgspec.json.decode(about, type=Declared).complete


def test_the_example_runs_from_csv_to_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(monkeypatch, capsys)
    for name, content in blocks("csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    commands = [line for _, block in blocks("sh") for line in block.splitlines()]
    assert [command.split()[1] for command in commands] == ["import", "check"] * 2
    outcomes = [cli(*shlex.split(command)[1:]) for command in commands]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 1]
    for (_, wanted), outcome in zip(blocks("text"), outcomes[1::2], strict=True):
        shown = [line.rstrip() for line in outcome.out.splitlines()]
        assert set(wanted.splitlines()) <= set(shown)


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_it_is_linked(page: str) -> None:
    assert "](docs/trace-format.md)" in (ROOT / page).read_text()
