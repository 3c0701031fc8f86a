"""`amcast report`: what runs did, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from ..check import Violation, space_time_svg
from ..core import UsageError
from ..trace import Run
from ._output import EXIT_CODES, JsonOption, coloured, console, errors, print_json, worst

if TYPE_CHECKING:  # Spark and the plotting library take a second to import: only this command pays for it
    from ..pipeline.checks import RunReport
    from ..pipeline.checks import Violation as Found
    from ..pipeline.ingest import Runs
    from ..pipeline.report import Written

_ROOT = Path("reports")


def register(app: typer.Typer) -> None:
    @app.command("report")
    def report(
        runs: Annotated[list[str], typer.Argument(help="Run folders, folders of runs, or patterns.", metavar="RUN...")],
        out: Annotated[
            Path | None, typer.Option(help="The new folder to write; reports/RUN_ID if not given.", metavar="DIR")
        ] = None,
        master: Annotated[str | None, typer.Option(help="Spark master; local[*] if not given.", metavar="URL")] = None,
        remote: Annotated[str | None, typer.Option(help="Spark Connect endpoint, sc://...", metavar="URL")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Check runs on Spark, measure them, and write a page about them with its figures and tables.

        The folder holds index.html, which needs nothing else and no network, figures as SVG and PNG, and tables as CSV
        and Parquet. Several runs are compared. Exit codes are those of [bold]amcast check[/bold].

        Examples:

        [bold]amcast report runs/one[/bold]

        [bold]amcast report runs/fastcast runs/basecast --out reports/comparison[/bold]
        """
        from ..pipeline.report import refuse_occupied

        if out is not None:
            refuse_occupied(out, "report")  # before minutes of work, not after
        read, reports, written = make_report(runs, out, master, remote, quiet=as_json)
        if as_json:
            print_json(_document(read, reports, written))
        else:
            _show(read, reports, written)
        raise typer.Exit(EXIT_CODES[worst([found.verdict for found in reports])])


def make_report(
    paths: list[str], out: Path | None, master: str | None, remote: str | None, quiet: bool
) -> tuple[Runs, list[RunReport], Written]:
    from pyspark.errors import PySparkException

    from ..pipeline.ingest import check_runs, read_runs
    from ..pipeline.report import free_place, write_report
    from ..pipeline.session import session

    status = errors.status("starting Spark ...") if errors.is_terminal and not quiet else None
    if status:
        status.start()

    def say(what: str) -> None:
        if status:
            status.update(f"{what} ...")

    try:
        with session(master, remote) as spark:
            say("reading")
            read = read_runs(spark, paths)
            say("checking")
            reports = check_runs(spark, read)
            target = out if out is not None else free_place(_ROOT, [run.run_id for run in read.runs])
            say("measuring")
            written = write_report(read, reports, target, _draw, lambda name: say(f"measuring, {name} done"))
    except PySparkException as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UsageError(f"Spark could not work through the runs: {lines[0] if lines else error}") from error
    finally:
        if status:
            status.stop()
    return read, reports, written


def _draw(run: Run, found: Found) -> str:
    return space_time_svg(run, Violation(found.property, found.messages, found.processes, found.explanation))


def _document(read: Runs, reports: list[RunReport], written: Written) -> dict[str, Any]:
    summary = {row["run_id"]: row for row in written.tables["summary"].to_pylist()}
    return {
        "verdict": worst([found.verdict for found in reports]),
        "out": str(written.folder),
        "files": written.files,
        "runs": [
            {"path": found.path, "run_id": found.run_id, "summary": summary.get(found.run_id), **found.to_json()}
            for found in reports
        ],
        "quarantined": [{"path": aside.path, "reason": aside.reason} for aside in read.quarantined],
    }


def _show(read: Runs, reports: list[RunReport], written: Written) -> None:
    for found in reports:
        console.print(f"[bold]{escape(found.run_id)}[/bold]  {coloured(found.verdict)}", highlight=False)
        for violation in found.violations[:1]:
            console.print(f"  {violation.property}: {violation.explanation}", highlight=False, markup=False)
    for aside in read.quarantined:
        console.print(f"set aside: {aside.path}: {aside.reason}", highlight=False, markup=False)
    console.print(f"report: {report_page(written)}", highlight=False, markup=False)


def report_page(written: Written) -> Path:
    from ..pipeline.report import PAGE

    return written.folder / PAGE
