"""`amcast check`: is what a system delivered correct?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..check import Report, check_run, space_time_svg, space_time_text
from ..core import UsageError
from ..trace import Run, read_run
from ._output import EXIT_CODES, JsonOption, coloured, console, print_json, progress, show_report, worst


def register(app: typer.Typer) -> None:
    @app.command("check")
    def check(
        runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
        diagram: Annotated[
            Path | None, typer.Option(help="Write the first counterexample's space-time diagram here (SVG).")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Verify run folders: integrity, validity, agreement, order, timestamps, FIFO order, genuineness.

        Reads any run in the documented tables, whoever wrote it, and trusts nothing in it. Exit codes: 0 all properties
        hold, 1 one is violated, 2 the folder is no run, 3 unknown (a run cut short can't prove agreement).

        Example: [bold]amcast check runs/demo --json[/bold]
        """
        if diagram is not None and diagram.exists():
            raise UsageError(f"{diagram} exists: nothing is overwritten, choose another name")
        loaded = [(path, read_run(path)) for path in runs]
        reports: list[tuple[Path, Run, Report]] = []
        with progress(as_json or len(loaded) < 2) as bar:
            task = bar.add_task("checking", total=len(loaded), note="")
            for path, run in loaded:
                reports.append((path, run, check_run(run)))
                bar.advance(task)
        if diagram is not None:
            _write_diagram(diagram, reports)
        if as_json:
            print_json(_document(reports))
        else:
            _show(reports, diagram)
        raise typer.Exit(EXIT_CODES[worst([report.verdict for _, _, report in reports])])


def _write_diagram(target: Path, reports: list[tuple[Path, Run, Report]]) -> None:
    for _, run, report in reports:
        if report.violations:
            target.write_text(space_time_svg(run, report.violations[0]))
            return


def _document(reports: list[tuple[Path, Run, Report]]) -> dict[str, Any]:
    """All runs together, and each one: the shape is the same for one run and for many."""
    properties: dict[str, Any] = {}
    for _, _, report in reports:
        for name, verdict in report.properties.items():
            properties[name] = worst([verdict, properties.get(name, "pass")])
    runs = [{"path": str(path), "run_id": run.info.run_id, **report.to_json()} for path, run, report in reports]
    return {
        "verdict": worst([report.verdict for _, _, report in reports]),
        "properties": properties,
        "violations": [{**violation, "run": run["path"]} for run in runs for violation in run["violations"]],
        "runs": runs,
    }


def _show(reports: list[tuple[Path, Run, Report]], diagram: Path | None) -> None:
    for path, run, report in reports:
        count = len(run.deliveries)
        console.print(f"[bold]{path}[/bold]  {run.info.protocol}, {count} deliveries: {coloured(report.verdict)}")
        if len(reports) == 1 or report.verdict != "pass":
            show_report(report)
        if report.violations:
            console.print("\n" + space_time_text(run, report.violations[0]), highlight=False, markup=False)
    if diagram is not None and diagram.exists():
        console.print(f"diagram: {diagram}")
