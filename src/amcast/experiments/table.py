"""What a reproduction found, for other programs: a row for each expectation, and one for each run."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from .cell import Measured, RecipeCell
from .outcome import RecipeOutcome

_OUTCOME = ("recipe", "what", "published", "ours", "unit", "rule", "deviation", "holds", "basis", "why")


def outcomes_csv(recipes: Sequence[RecipeOutcome]) -> bytes:
    rows = [[getattr(each, name) for name in _OUTCOME] for recipe in recipes for each in recipe.outcomes]
    return _csv([_OUTCOME, *rows])


def runs_csv(cells: Mapping[str, Sequence[RecipeCell]], measured: Mapping[str, Measured]) -> bytes:
    """A row for each figure of each run, so that every kind of figure has a place: recipe, run, verdict, figure,
    value."""
    rows: list[Sequence[object]] = [("recipe", "run", "verdict", "why", "figure", "value")]
    for recipe, mine in cells.items():
        for cell in mine:
            result = measured[cell.key()]
            figures: list[tuple[str, float | str]] = [*sorted(result.figures.items())] or [("", "")]
            rows += [(recipe, cell.title(), result.verdict, result.why, *figure) for figure in figures]
    return _csv(rows)


def _csv(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
