"""`amcast report`: verdicts, figures and tables of runs as one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .._extras import require
from ..check import space_time_svg, worst
from ._output import (
    EXIT_CODES,
    UNKNOWN,
    JsonOption,
    MasterOption,
    RemoteOption,
    coloured,
    console,
    line,
    print_json,
    saying,
)

if TYPE_CHECKING:  # Spark and the plotting library take a second to import: only commands that need them do
    from ..pipeline.report import Written

_ROOT = Path("reports")


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(
        runs: Annotated[list[str], typer.Argument(help="Run folders, folders of runs, or patterns.", metavar="RUN...")],
        out: Annotated[
            Path | None, typer.Option(help="The new folder to write; reports/RUN_ID if not given.", metavar="DIR")
        ] = None,
        master: MasterOption = None,
        remote: RemoteOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Check runs on Spark, measure them, and write a page about them with its figures and tables.

        The folder holds index.html, which needs nothing else and no network, figures as SVG and PNG, and tables as CSV
        and Parquet. Several runs are compared. Exit codes are those of [bold]amcast check[/bold].

        Examples:

        [bold]amcast report runs/one[/bold]

        [bold]amcast report runs/fastcast runs/basecast --out reports/comparison[/bold]
        """
        require("report", "amcast report")
        from ..trace.whole import refuse_occupied

        if out is not None:
            refuse_occupied(out, "report")  # before minutes of work, not after
        written = make_report(runs, out, master, remote, quiet=as_json)
        if as_json:
            print_json(_document(written))
        else:
            _show(written)
        code = EXIT_CODES[worst([found.verdict for found in written.reports])]
        raise typer.Exit(code or (UNKNOWN if written.runs.quarantined else 0))


def make_report(paths: list[str], out: Path | None, master: str | None, remote: str | None, quiet: bool) -> Written:
    from ..pipeline.ingest import check_runs, read_runs
    from ..pipeline.report import free_place, write_report
    from ..pipeline.spark import running_spark

    with saying(quiet) as say, running_spark(master, remote) as spark:
        say("reading")
        read = read_runs(spark, paths)
        say("checking")
        reports = check_runs(spark, read)
        target = out if out is not None else free_place(_ROOT, [run.run_id for run in read.runs])
        say("measuring")
        return write_report(read, reports, target, space_time_svg, lambda name: say(f"measuring, {name} done"))


def _document(written: Written) -> dict[str, Any]:
    summary = {row["run_id"]: row for row in written.tables["summary"].to_pylist()}
    return {
        "verdict": worst([found.verdict for found in written.reports]),
        "out": str(written.folder),
        "files": written.files,
        "runs": [
            {"path": found.path, "run_id": found.run_id, "summary": summary.get(found.run_id), **found.to_json()}
            for found in written.reports
        ],
        "quarantined": [{"path": aside.path, "reason": aside.reason} for aside in written.runs.quarantined],
    }


def _show(written: Written) -> None:
    for found in written.reports:
        console.print(line((found.run_id, "bold"), "  ", coloured(found.verdict)))
        for violation in found.violations[:1]:
            console.print(line(f"  {violation.property}: {violation.explanation}"))
    for aside in written.runs.quarantined:
        console.print(line(f"set aside: {aside.path}: {aside.reason}"))
    console.print(line(f"report: {report_page(written)}"))


def report_page(written: Written) -> Path:
    from ..pipeline.report import PAGE

    return written.folder / PAGE
