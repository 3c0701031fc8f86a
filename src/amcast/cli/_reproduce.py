"""`amcast reproduce`: the papers' experiments, run again, with what was published beside what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .._extras import require
from ..core import UsageError
from ..experiments import Measured, Recipe, RecipeCell, RecipeOutcome, recipes_named
from ..experiments.document import cells_of, summary_text
from ..experiments.outcome import summary_of, worst_first
from ..experiments.recipe import check_scale
from ..experiments.running import (
    RunAll,
    Take,
    judged,
    locally,
    measure,
    planned_cells,
    write_report,
    write_tables,
)
from ..studies import CellFolder
from ._output import (
    FAIL,
    JsonOption,
    MasterOption,
    RemoteOption,
    console,
    errors,
    line,
    print_json,
    progress,
    table,
)

_SHOWN_MAX = 25
_COLOURS = {"holds": "green", "differs": "red", "not measured": "yellow"}


def register(app: typer.Typer) -> None:
    @app.command("reproduce")
    def reproduce(
        names: Annotated[
            list[str] | None,
            typer.Argument(
                help="Recipes, the beginnings of their names, or all.", metavar="NAME...", show_default=False
            ),
        ] = None,
        lists: Annotated[bool, typer.Option("--list", help="List the recipes and what they need.")] = False,
        scale: Annotated[
            str, typer.Option(help="small: minutes on two cores; paper: as many messages as there, for hours.")
        ] = "small",
        jobs: Annotated[int, typer.Option(help="Local processes to use; all cores if 0.", min=0)] = 0,
        master: MasterOption = None,
        remote: RemoteOption = None,
        out: Annotated[
            Path | None, typer.Option(help="The folder; reproductions/SCALE if not given.", metavar="DIR")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run experiments of the papers again; say for each published figure what came out, and whether it holds.

        Runs are simulated and checked. They run in processes of this machine, or as Spark jobs if --master or --remote
        is given. The folder gets one page (index.html, and reproduction.md with figures; they need the extra "report")
        and tables (outcomes.csv, runs.csv). Finished runs are kept: the same command goes on where it was stopped.
        Exit code 1 if a run violates what its protocol claims; a published figure that does not come out is a result,
        not an error.

        Examples:

        [bold]amcast reproduce --list[/bold]

        [bold]amcast reproduce delays fastcast-wan-latency[/bold]

        [bold]amcast reproduce fastcast[/bold]   all recipes whose names begin with it

        [bold]amcast reproduce all --scale paper --master spark://host:7077[/bold]
        """
        size = check_scale(scale)
        if lists:
            _list(recipes_named(names or ["all"]), as_json)
            return
        if not names:
            raise UsageError("name a recipe, or all: `amcast reproduce --list` names them")
        recipes = recipes_named(names)
        cells = planned_cells(recipes, size)
        folder = CellFolder(out or Path("reproductions") / size, Measured, "reproduction")
        run_all = _on_spark(master, remote) if master or remote else locally(jobs)
        with _telling_progress(as_json) as tell:
            measured = measure(recipes, cells, size, folder, run_all, tell)
        outcomes = judged(recipes, cells, measured)
        files = write_tables(folder.folder, outcomes, cells, measured)
        files = _report(lambda: write_report(folder.folder, size, recipes, outcomes, cells, measured)) + files
        if as_json:
            print_json(_document(outcomes, files))
        else:
            _show(outcomes, files)
        if any(each.verdict == "fail" for each in outcomes):
            raise typer.Exit(FAIL)


def _on_spark(master: str | None, remote: str | None) -> RunAll:
    require("spark", "amcast reproduce --master")

    def run(cells: Sequence[RecipeCell], take: Take) -> None:
        from ..experiments.cell import run_text
        from ..pipeline.spark import running_spark
        from ..studies.on_spark import run_on_spark

        if cells:
            with running_spark(master, remote, "amcast reproduce") as spark:
                run_on_spark(spark, cells, take, run_text, Measured, cells_a_task=1)

    return run


@contextmanager
def _telling_progress(quiet: bool) -> Iterator[Callable[[int, int, Measured | None], None]]:
    done, total, bad = 0, 0, 0
    with progress(quiet) as bar:
        task = bar.add_task("runs", total=None, note="")

        def tell(finished: int, count: int, latest: Measured | None) -> None:
            nonlocal done, total, bad
            done, total, bad = finished, count, bad + (latest is not None and latest.verdict != "pass")
            bar.update(task, completed=done, total=total, note=f"{bad} did not pass" if bad else "")

        try:
            yield tell
        except KeyboardInterrupt:
            bar.stop()
            errors.print(line(f"{done} of {total} runs are finished and kept: the same command goes on there"))
            raise


def _report(write: Callable[[], list[Path]]) -> list[Path]:
    """The tables must do where plotting is not installed."""
    try:
        require("report", "the page")
        return write()
    except ImportError as error:
        errors.print(line(("warning:", "yellow"), f" there is no page: {error}"), soft_wrap=True)
        return []


# ------------------------------------------------------------------------------------------------- output


def _list(recipes: Sequence[Recipe], as_json: bool) -> None:
    rows = [
        {
            "name": each.name,
            "title": each.title,
            "source": each.source,
            "about": each.about,
            "scaled": each.scaled,
            "runs": 0 if each.missing else len(each.cells("small")),
            "expectations": len(each.expects),
            "missing": each.missing,
        }
        for each in recipes
    ]
    if as_json:
        print_json(rows)
        return
    shown = table("recipe", "runs", "source", "what")
    for each, row in zip(recipes, rows, strict=True):
        shown.add_row(each.name, str(row["runs"] or "-"), each.source, each.missing or each.title)
    console.print(shown)


def _document(outcomes: Sequence[RecipeOutcome], files: Sequence[Path]) -> dict[str, Any]:
    everything = [each for recipe in outcomes for each in recipe.outcomes]
    return {"summary": summary_of(everything), "recipes": outcomes, "files": [str(file) for file in files]}


def _show(outcomes: Sequence[RecipeOutcome], files: Sequence[Path]) -> None:
    everything = worst_first(each for recipe in outcomes for each in recipe.outcomes)
    shown = table("recipe", "what the paper says", "published", "ours", "off by", "")
    for each in everything[:_SHOWN_MAX]:
        *cells, holds, _ = cells_of(each)
        shown.add_row(*cells, line((holds, _COLOURS[each.holds])))
    console.print(shown)
    if len(everything) > _SHOWN_MAX:
        console.print(f"... and {len(everything) - _SHOWN_MAX} more in {files[0]}")
    for recipe in outcomes:
        if recipe.missing:
            console.print(line(f"{recipe.name} can't be run: {recipe.missing}"))
        for bad in recipe.bad_runs:
            console.print(line(("did not pass: ", "red"), f"{recipe.name}, {bad}"))
    console.print(summary_text(summary_of(everything)))
    for file in files:
        console.print(line(str(file)), soft_wrap=True)
