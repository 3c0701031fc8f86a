"""Runs the cells of recipes, keeps what is finished, and writes the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ..studies import CellFolder
from ..studies.local import run_in_processes
from ..trace.whole import write_whole
from .cell import Measured, RecipeCell, killed, run_recipe_cell
from .document import markdown, page
from .outcome import RecipeOutcome, judge
from .recipe import Recipe, Results, Scale
from .table import outcomes_csv, runs_csv

PAGE, MARKDOWN, FIGURES = "index.html", "reproduction.md", "reproduction"
_TABLES = ("outcomes.csv", "runs.csv")

Take = Callable[[RecipeCell, Measured], None]
RunAll = Callable[[Sequence[RecipeCell], Take], None]


class Reproduction(msgspec.Struct, frozen=True):
    """The plan, as it stands in the folder."""

    recipes: tuple[str, ...]
    scale: Scale


def planned_cells(recipes: Sequence[Recipe], scale: Scale) -> dict[str, list[RecipeCell]]:
    return {recipe.name: recipe.cells(scale) for recipe in recipes if not recipe.missing}


def locally(jobs: int) -> RunAll:
    def run(cells: Sequence[RecipeCell], take: Take) -> None:
        for cell, measured in run_in_processes(cells, jobs, run_recipe_cell, killed):
            take(cell, measured)

    return run


def measure(
    recipes: Sequence[Recipe],
    cells: Mapping[str, Sequence[RecipeCell]],
    scale: Scale,
    folder: CellFolder[Measured],
    run_all: RunAll,
    tell: Callable[[int, int, Measured | None], None],
) -> dict[str, Measured]:
    """What all cells measured, by their keys. `tell` hears how many of how many are finished, and the latest.

    Cells that recipes have in common run once. What broke is not kept, and runs again the next time.
    """
    wanted = {cell.key(): cell for mine in cells.values() for cell in mine}
    with folder.writing(Reproduction(tuple(recipe.name for recipe in recipes), scale)) as finished:
        found = {key: finished[key] for key in wanted if key in finished}
        tell(len(found), len(wanted), None)

        def take(cell: RecipeCell, measured: Measured) -> None:
            if measured.is_final:
                folder.add(cell.key(), measured)
            found[cell.key()] = measured
            tell(len(found), len(wanted), measured)

        run_all([cell for key, cell in wanted.items() if key not in found], take)
    return found


def judged(
    recipes: Sequence[Recipe], cells: Mapping[str, Sequence[RecipeCell]], measured: Mapping[str, Measured]
) -> list[RecipeOutcome]:
    return [judge(recipe, cells.get(recipe.name, ()), measured) for recipe in recipes]


def write_tables(
    folder: Path,
    outcomes: Sequence[RecipeOutcome],
    cells: Mapping[str, Sequence[RecipeCell]],
    measured: Mapping[str, Measured],
) -> list[Path]:
    for name, content in zip(_TABLES, (outcomes_csv(outcomes), runs_csv(cells, measured)), strict=True):
        write_whole(folder / name, content)
    return [folder / name for name in _TABLES]


def write_report(
    folder: Path,
    scale: Scale,
    recipes: Sequence[Recipe],
    outcomes: Sequence[RecipeOutcome],
    cells: Mapping[str, Sequence[RecipeCell]],
    measured: Mapping[str, Measured],
) -> list[Path]:
    """The page, and the same as Markdown with its figures beside it. Needs the extra `report`."""
    from .figure import draw

    drawn = {recipe.name: draw(recipe, Results(cells.get(recipe.name, ()), measured)) for recipe in recipes}
    pictures = {name: each.svg for name, each in drawn.items() if each is not None}
    (folder / FIGURES).mkdir(exist_ok=True)
    for name, svg in pictures.items():
        write_whole(folder / FIGURES / f"{name}.svg", svg.encode())
    links = {name: f"{FIGURES}/{name}.svg" for name in pictures}
    write_whole(folder / MARKDOWN, markdown(scale, outcomes, links).encode())
    write_whole(folder / PAGE, page(scale, outcomes, pictures).encode())
    return [folder / PAGE, folder / MARKDOWN]
