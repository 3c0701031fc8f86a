"""What a recipe is made of: cells, expectations, figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from ..core import UsageError
from .cell import Label, Measured, RecipeCell

Scale = Literal["small", "paper"]
SCALES: tuple[Scale, ...] = ("small", "paper")


class MissingError(Exception):
    """A figure was asked for that no cell measured, since a run failed or had no such messages."""


class Results:
    """What the cells of a recipe measured, found by their labels."""

    def __init__(self, cells: Sequence[RecipeCell], measured: Mapping[str, Measured]) -> None:
        self.rows = [(cell, measured[cell.key()]) for cell in cells if cell.key() in measured]

    def __call__(self, figure: str, **labels: Label) -> float:
        """The median over all cells that have these labels, such as seeds."""
        found = [
            result.figures[figure]
            for cell, result in self.rows
            if all(cell.labels.get(name) == value for name, value in labels.items()) and figure in result.figures
        ]
        if not found:
            wanted = ", ".join(f"{name} {value}" for name, value in labels.items())
            raise MissingError(f"no run measured {figure} of {wanted}")
        return median(found)


Measure = Callable[[Results], float]
Basis = Literal["delays", "hardware", "workload"]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a paper says: a figure, and how near ours has to be for it to hold.

    Give one of `within` (a share of the published figure), `at_most` and `at_least`. `basis` says what decides it:
    message delays alone, the authors' machines, or a workload whose details were not published.
    """

    what: str
    ours: Measure
    published: float
    unit: str = ""
    within: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    basis: Basis = "delays"
    why: str = ""  # why it does not hold here, for readers of the report
    words: Callable[[Results], str] | None = None  # what came out, where a number says little
    published_words: str = ""

    def deviation(self, ours: float) -> float:
        """How far from holding exactly, as a share: 0.1 is 10 % too much, -0.1 too little; 0 if a bound is kept."""
        if self.within is not None:
            return _share(ours, self.published)
        if self.at_most is not None:
            return max(0.0, _share(ours, self.at_most))
        assert self.at_least is not None, f"{self.what}: an expectation has a rule"
        return min(0.0, _share(ours, self.at_least))

    def holds(self, ours: float) -> bool:
        return abs(self.deviation(ours)) <= (self.within or 0.0) + 1e-9

    def rule(self) -> str:
        if self.within is not None:
            return f"within {self.within:.0%}" if self.within else "exactly"
        return f"at most {self.at_most:g}" if self.at_most is not None else f"at least {self.at_least:g}"


def _share(ours: float, wanted: float) -> float:
    if wanted == 0:
        return 0.0 if ours == 0 else (1.0 if ours > 0 else -1.0)
    return (ours - wanted) / abs(wanted)


@dataclass(frozen=True)
class Line:
    """A curve or a row of bars: ours from the cells, and the points that were published, as far as there are any."""

    name: str
    ours: Callable[[Results, float], float]  # at this place of the horizontal axis
    published: Mapping[float, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Chart:
    """One panel in the form of the paper: `places` on the horizontal axis, or bars if `has_bars`."""

    title: str
    places: Sequence[float]
    lines: Sequence[Line]
    across: str
    up: str
    has_bars: bool = False
    names: Sequence[str] = ()  # of the places, if they are not numbers


@dataclass(frozen=True, kw_only=True)
class Recipe:
    name: str
    title: str
    source: str  # paper and figure
    about: str  # the set-up, in a few words
    scaled: str = ""  # what is smaller than in the paper at scale small
    cells: Callable[[Scale], list[RecipeCell]] = lambda scale: []
    expects: Sequence[Expectation] = ()
    charts: Sequence[Chart] = ()
    missing: str = ""  # why it can't be run, if it can't
    notes: str = ""  # what a reader should know of the comparison


def check_scale(text: str) -> Scale:
    for scale in SCALES:
        if text == scale:
            return scale
    raise UsageError(f"there is no scale '{text}': choose one of {', '.join(SCALES)}")
