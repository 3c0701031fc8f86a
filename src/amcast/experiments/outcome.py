"""What came out: each expectation beside its measurement, and whether it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from ..check import Verdict, worst
from .cell import Measured, RecipeCell
from .recipe import Basis, Expectation, MissingError, Recipe, Results

Holds = Literal["holds", "differs", "not measured"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """An expectation that was looked at."""

    recipe: str
    what: str
    published: float
    ours: float | None
    unit: str
    rule: str
    deviation: float | None  # as a share; 0 if a bound is kept
    holds: Holds
    basis: Basis
    why: str  # why it does not hold
    words: tuple[str, str] = ("", "")  # published and ours, where numbers say little


class RecipeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    source: str
    about: str
    scaled: str
    notes: str
    missing: str
    cells: int
    verdict: Verdict | None  # of the runs, by the checker; None if there were none
    bad_runs: tuple[str, ...]  # those that did not pass, and why
    outcomes: tuple[Outcome, ...]


_BAD_MAX = 5


def judge(recipe: Recipe, cells: Sequence[RecipeCell], measured: Mapping[str, Measured]) -> RecipeOutcome:
    results = Results(cells, measured)
    bad = [f"{cell.title()}: {each.verdict}, {each.why}" for cell, each in results.rows if each.verdict != "pass"]
    return RecipeOutcome(
        name=recipe.name,
        title=recipe.title,
        source=recipe.source,
        about=recipe.about,
        scaled=recipe.scaled,
        notes=recipe.notes,
        missing=recipe.missing,
        cells=len(results.rows),
        verdict=worst({each.verdict for _, each in results.rows}) if results.rows else None,
        bad_runs=tuple(bad[:_BAD_MAX]),
        outcomes=tuple(_look_at(recipe.name, each, results) for each in recipe.expects),
    )


def _look_at(recipe: str, expectation: Expectation, results: Results) -> Outcome:
    settled: dict[str, Any] = {
        "recipe": recipe,
        "what": expectation.what,
        "published": expectation.published,
        "unit": expectation.unit,
        "rule": expectation.rule(),
        "basis": expectation.basis,
    }
    try:
        ours = expectation.ours(results)
    except (MissingError, ZeroDivisionError) as error:
        return Outcome(**settled, ours=None, deviation=None, holds="not measured", why=str(error))
    holds = expectation.holds(ours)
    return Outcome(
        **settled,
        ours=ours,
        deviation=expectation.deviation(ours),
        holds="holds" if holds else "differs",
        why="" if holds else expectation.why,
        words=("", "") if expectation.words is None else (expectation.published_words, expectation.words(results)),
    )


def worst_first(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """What does not hold by how far it is off, then what was not measured, then what holds."""

    def key(each: Outcome) -> tuple[int, float]:
        rank = {"differs": 0, "not measured": 1, "holds": 2}[each.holds]
        return rank, -abs(each.deviation or 0.0)

    return sorted(outcomes, key=key)


class Summary(msgspec.Struct, frozen=True):
    """How many expectations hold; and of those that message delays alone decide."""

    holds: int
    differs: int
    not_measured: int
    delays_hold: int
    delays: int


def summary_of(outcomes: Sequence[Outcome]) -> Summary:
    counts = {state: sum(each.holds == state for each in outcomes) for state in ("holds", "differs", "not measured")}
    delays = [each for each in outcomes if each.basis == "delays"]
    return Summary(
        counts["holds"],
        counts["differs"],
        counts["not measured"],
        sum(each.holds == "holds" for each in delays),
        len(delays),
    )
