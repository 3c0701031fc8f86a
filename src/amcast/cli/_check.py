"""`amcast check`: is what a system delivered correct?"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from .._extras import require
from ..check import Report, check_run, space_time_svg, space_time_text, worst
from ..core import UsageError
from ..trace import Run, read_run
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
    progress,
    saying,
    show_verdicts,
    show_violations,
)

if TYPE_CHECKING:  # Spark takes a second to import: only --engine spark does
    from ..pipeline import Quarantined, RunReport

Engine = Literal["memory", "spark"]


class Judged(msgspec.Struct, frozen=True):
    """A run and what was found, whichever engine found it."""

    path: str
    run_id: str
    report: Report
    run: Any = None  # in memory only


def register(app: typer.Typer) -> None:
    @app.command("check")
    def check(
        runs: Annotated[list[str], typer.Argument(help="Run folders.", metavar="RUN...")],
        engine: Annotated[Engine, typer.Option(help="In this process, or on Spark for traces of any size.")] = "memory",
        master: MasterOption = None,
        remote: RemoteOption = None,
        budget: Annotated[
            float | None,
            typer.Option(
                help="Seconds in which an order of the operations must be found, or else the verdict is unknown;"
                " without it, a fixed number of steps.",
                min=0.0,
                metavar="SECONDS",
            ),
        ] = None,
        diagram: Annotated[
            Path | None, typer.Option(help="Write the first counterexample's space-time diagram here (SVG).")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Verify run folders: integrity, validity, agreement, order, timestamps, FIFO, genuineness, linearizability.

        Reads any run in the documented tables, whoever wrote it, and trusts nothing in it. Exit codes: 0 all properties
        hold, 1 one is violated, 2 a folder is not a run, 3 unknown (a run that was cut short can't prove agreement).

        Examples:

        [bold]amcast check runs/demo-1 --json[/bold]

        [bold]amcast check runs/demo-1 --engine spark[/bold]
        """
        if diagram is not None and diagram.exists():
            raise UsageError(f"{diagram} exists: nothing is overwritten, choose another name")
        if engine == "memory" and (master or remote):
            raise UsageError("--master and --remote go with --engine spark")
        if engine == "spark" and budget is not None:
            raise UsageError("--budget goes with --engine memory: tasks on Spark count steps")
        if engine == "spark" and diagram is not None:
            raise UsageError("with --engine spark, diagrams are drawn by: amcast report RUN...")
        if engine == "spark":
            judged, set_aside = _on_spark(runs, master, remote, as_json)
        else:
            judged, set_aside = _in_memory(runs, budget, as_json), []
        if diagram is not None:
            _write_diagram(diagram, judged)
        if as_json:
            print_json(_document(judged, set_aside))
        else:
            _show(judged, set_aside, diagram)
        code = EXIT_CODES[worst([each.report.verdict for each in judged])]
        raise typer.Exit(code or (UNKNOWN if set_aside else 0))


def _in_memory(paths: list[str], budget_s: float | None, quiet: bool) -> list[Judged]:
    loaded = [(path, read_run(path)) for path in paths]
    judged: list[Judged] = []
    with progress(quiet or len(loaded) < 2) as bar:
        task = bar.add_task("checking", total=len(loaded), note="")
        for path, run in loaded:
            judged.append(Judged(path, run.info.run_id, check_run(run, _until(budget_s)), run))
            bar.advance(task)
    return judged


def _until(seconds: float | None) -> Callable[[], bool] | None:
    """Tells whether so much time has passed since."""
    if seconds is None:
        return None
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _on_spark(
    paths: list[str], master: str | None, remote: str | None, quiet: bool
) -> tuple[list[Judged], list[Quarantined]]:
    require("spark", "amcast check --engine spark")
    from ..pipeline import check_runs, read_runs, running_spark

    with saying(quiet) as say, running_spark(master, remote) as spark:
        say("reading")
        runs = read_runs(spark, paths)
        say("checking")
        reports: list[RunReport] = check_runs(spark, runs)
        return [Judged(report.path, report.run_id, report) for report in reports], list(runs.quarantined)


def _write_diagram(target: Path, judged: list[Judged]) -> None:
    for each in judged:
        if each.report.violations:
            target.write_text(space_time_svg(each.run, each.report.violations[0]))
            return


def _document(judged: list[Judged], set_aside: list[Quarantined]) -> dict[str, Any]:
    """All runs together, and each one: the shape is the same for one run and for many, and for both engines."""
    properties: dict[str, Any] = {}
    for each in judged:
        for name, verdict in each.report.properties.items():
            properties[name] = worst([verdict, properties.get(name, "pass")])
    runs = [{"path": each.path, "run_id": each.run_id, **each.report.to_json()} for each in judged]
    return {
        "verdict": worst([each.report.verdict for each in judged]),
        "properties": properties,
        "violations": [{**violation, "run": run["path"]} for run in runs for violation in run["violations"]],
        "runs": runs,
        "quarantined": [{"path": aside.path, "reason": aside.reason} for aside in set_aside],
    }


def _show(judged: list[Judged], set_aside: list[Quarantined], diagram: Path | None) -> None:
    for each in judged:
        report = each.report
        console.print(line((each.path, "bold"), f"  {each.run_id}: ", coloured(report.verdict)))
        if len(judged) == 1 or report.verdict != "pass":
            show_verdicts(report)
        is_drawn = bool(report.violations) and isinstance(each.run, Run)
        if is_drawn:  # the drawing has the words of its violation above it
            console.print("\n" + space_time_text(each.run, report.violations[0]), highlight=False)
        show_violations(report.violations[is_drawn:])
    for aside in set_aside:
        console.print(line(f"set aside: {aside.path}: {aside.reason}"), style="yellow")
    if diagram is not None and diagram.exists():
        console.print(f"diagram: {diagram}")
