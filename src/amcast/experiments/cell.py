"""One run of a recipe: a scenario, or a way of running of its own; simulated, checked, and measured."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .. import __version__
from ..check import Verdict
from ..sim import Scenario, simulate
from ..studies.cell import judge_run
from .measures import MEASURES
from .programs import PROGRAMS

Label = str | int | float


class RecipeCell(msgspec.Struct, frozen=True, kw_only=True):
    """`labels` are how expectations and figures find it. Either a scenario with the measures that are taken of it, or
    the name of a program with its settings."""

    labels: dict[str, Label]
    scenario: Scenario | None = None
    measures: tuple[str, ...] = ("load",)
    program: str = ""
    settings: dict[str, Any] = {}

    def key(self) -> str:
        """Equal for cells that have equal results, also of other recipes."""
        what = (__version__, self.scenario, self.measures, self.program, self.settings)
        return hashlib.sha256(msgspec.json.encode(what, order="deterministic")).hexdigest()[:24]

    def title(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.labels.items())


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Verdict
    why: str  # if the verdict is not pass
    figures: dict[str, float]
    is_final: bool = True  # false: the program that ran it broke, and it is worth a second try


def run_recipe_cell(cell: RecipeCell) -> Measured:
    """Never raises: one cell that breaks must not stop the others."""
    return _guarded(cell, _run)


def _guarded(cell: RecipeCell, run: Callable[[RecipeCell], Measured]) -> Measured:
    try:
        return run(cell)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return broken(f"{type(error).__name__}: {error} (in {frame.name}, line {frame.lineno})")


def _run(cell: RecipeCell) -> Measured:
    if cell.scenario is None:
        verdict, why, figures = PROGRAMS[cell.program](cell.settings)
        return Measured(verdict=verdict, why=why, figures=_as_floats(figures))
    result = simulate(cell.scenario)
    run = result.run()
    verdict, why = judge_run(result, run)
    figures = {}
    for name in cell.measures:
        figures.update(MEASURES[name](run, cell.scenario))
    return Measured(verdict=verdict, why=why, figures=_as_floats(figures))


def _as_floats(figures: Mapping[str, float]) -> dict[str, float]:
    """Whatever they were: as text, a number of numpy's or a truth value would not come back as a float."""
    return {name: float(value) for name, value in figures.items()}


def broken(why: str) -> Measured:
    return Measured(verdict="unknown", why=why, figures={}, is_final=False)


def killed(cell: RecipeCell) -> Measured:
    return broken("its process was killed, perhaps for want of memory")


def run_text(text: str) -> str:
    """A cell in a task of Spark's, from text to text."""
    return msgspec.json.encode(run_recipe_cell(msgspec.json.decode(text, type=RecipeCell))).decode()
