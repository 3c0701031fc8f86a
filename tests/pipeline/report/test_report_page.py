"""The folder and its page: complete, self-contained, escaped; or not there at all."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from amcast.check import Violation, space_time_svg
from amcast.core import UsageError
from amcast.pipeline._inspect import inspect_run
from amcast.pipeline.checks import RunReport
from amcast.pipeline.figures import all_figures
from amcast.pipeline.ingest import Quarantined
from amcast.pipeline.metrics import METRICS
from amcast.pipeline.report import _write, free_place, write_report
from amcast.pipeline.report._excerpt import excerpt, run_around
from amcast.pipeline.report._html import embed_svg, number
from amcast.pipeline.report._page import Content, page
from amcast.trace.whole import new_folder
from tests.pipeline.report.report_traces import BY_HAND, CROSSED, TINY, HandMade, run_command

FIGURES = ("latency_cdf", "throughput", "latency_over_time", "wire_kinds")


class Tags(HTMLParser):
    """Whether tags are closed, and what they refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_self_contained(page: str) -> Tags:
    assert "http://" not in page
    assert "https://" not in page
    assert not re.search(r"@import|url\((?!#)", page)
    tags = Tags(page)
    assert tags.open == []
    assert len(set(tags.ids)) == len(tags.ids)
    assert {link[1:] for link in tags.links if link.startswith("#")} <= set(tags.ids)
    assert all(link.startswith("#") for link in tags.links)
    assert not tags.tags & {"script", "link", "iframe", "img", "object"}
    return tags


def test_folder_is_complete(handmade: HandMade) -> None:
    files = set(handmade.document["files"])
    assert files == {
        "index.html",
        "figures/counterexample-1.svg",
        *(f"figures/{name}.{kind}" for name in FIGURES for kind in ("svg", "png")),
        *(f"tables/{name}.{kind}" for name in METRICS for kind in ("csv", "parquet")),
    }
    assert files == {str(path.relative_to(handmade.folder)) for path in handmade.folder.rglob("*") if path.is_file()}
    assert [path.name for path in handmade.folder.parent.iterdir() if path.name.startswith(".")] == []


def test_page_stands_alone_and_escapes_what_runs_say(handmade: HandMade) -> None:
    check_self_contained(handmade.page)
    assert "by&lt;hand&gt;" in handmade.page
    assert "&lt;/pre&gt;&lt;script&gt;" in handmade.page
    assert "&lt;b&gt;" in handmade.page


def test_page_compares_runs(handmade: HandMade) -> None:
    assert '<h2 id="comparison">' in handmade.page
    for entry in METRICS.values():
        assert entry.title in handmade.page


def test_bad_run_fails_with_its_counterexample(handmade: HandMade) -> None:
    assert handmade.code == 1
    assert handmade.document["verdict"] == "fail"
    verdicts = {run["run_id"]: run["verdict"] for run in handmade.document["runs"]}
    assert verdicts == {BY_HAND: "unknown", TINY: "pass", CROSSED: "fail"}
    (bad,) = (run for run in handmade.document["runs"] if run["run_id"] == CROSSED)
    assert bad["properties"]["prefix"] == "fail"
    assert "A property is violated." in handmade.page
    assert html.escape(bad["violations"][0]["explanation"]) in handmade.page
    assert 'id="counterexample-2"' in handmade.page


def test_page_of_one_good_run(handmade: HandMade) -> None:
    run = inspect_run(str(handmade.folder.parent / "tiny"))
    report = RunReport({"integrity": "pass", "agreement": "pass"}, [], {}, TINY, run.path)
    tables = {name: data.filter(pc.field("run_id") == TINY) for name, data in handmade.tables.items()}
    pictures = all_figures(tables, {}, [TINY])
    assert [picture.name for picture in pictures] == list(FIGURES[:-1])  # the wire was not recorded
    found = page(Content([run], [report], tables, pictures, {}, [Quarantined("x<y", "because")]))
    check_self_contained(found)
    assert "All properties hold." in found
    assert "x&lt;y" in found
    assert '<h2 id="comparison">' not in found


def test_figures_survive_strange_names(handmade: HandMade) -> None:
    names = {BY_HAND: "_$x^{$ 混沌 " + "long " * 30, TINY: "", CROSSED: "a\nb"}
    column = "run_id"
    tables = {}
    for name, data in handmade.tables.items():
        renamed = [names[run] for run in data.column(column).to_pylist()]
        tables[name] = data.set_column(0, column, pa.array(renamed, pa.string()))
    pictures = all_figures(tables, {names[BY_HAND]: [{"what": "_odd", "at_us": 10}]}, list(names.values()))
    assert [picture.name for picture in pictures] == list(FIGURES)
    assert all(picture.png.startswith(b"\x89PNG") for picture in pictures)


def test_excerpt_holds_what_the_counterexample_is_about(handmade: HandMade) -> None:
    run = inspect_run(str(handmade.folder.parent / "crossed"))
    (bad,) = (run for run in handmade.document["runs"] if run["run_id"] == CROSSED)
    violation = msgspec.convert(bad["violations"][0], Violation)
    whole, part = run_around(run, violation), excerpt(run, violation)
    assert space_time_svg(whole, violation) == space_time_svg(part, violation)


def test_command_refuses_before_it_works(handmade: HandMade, spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not empty"):
        run_command(spark, handmade.folder.parent / "tiny", "--out", handmade.folder)
    with pytest.raises(UsageError, match="does not exist"):
        run_command(spark, tmp_path / "nothing", "--out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------- all or nothing


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError("disk full")])
def test_nothing_is_left_on_failure(
    error: BaseException | type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(_write, "frames_of", lambda runs: None)
    monkeypatch.setattr(_write, "compute", fail)
    runs: Any = SimpleNamespace(runs=[], quarantined=[])
    with pytest.raises((KeyboardInterrupt, RuntimeError, UsageError)):
        write_report(runs, [], tmp_path / "reports" / "one")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(UsageError, match="not empty"), new_folder(tmp_path / "taken", "report"):
        pass
    assert (tmp_path / "taken" / "file").read_text() == "mine"


def test_default_place(tmp_path: Path) -> None:
    assert free_place(tmp_path, ["a/../b c"]).name == "a-..-b-c"
    assert free_place(tmp_path, ["..", "b"]).name == "run-and-1-more"
    (tmp_path / "one").mkdir()
    (tmp_path / "one-2").mkdir()
    assert free_place(tmp_path, ["one"]).name == "one-3"


# ------------------------------------------------------------------------------------------ small pieces


def test_embedded_pictures_keep_to_themselves() -> None:
    svg = (
        '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "http://x"><svg xmlns="http://www.w3.org/2000/svg">'
        '<style>text { fill: red } .a, .b { x: y }</style><defs><g id="m"/></defs>'
        '<use xlink:href="#m"/><g clip-path="url(#m)"/></svg>'
    )
    found = embed_svg(svg, "one", "a & b")
    assert "http" not in found
    assert 'id="one-m"' in found
    assert 'href="#one-m"' in found
    assert "url(#one-m)" in found
    assert "#one text { fill: red }" in found
    assert "#one .a, #one .b {" in found
    assert 'aria-label="a &amp; b"' in found


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567, "1,234,567"), (0.1234, "0.123"), (12.345, "12.35"), (123.45, "123.5"), (1e4, "10,000")],
)
def test_numbers(value: float, shown: str) -> None:
    assert number(value) == shown
