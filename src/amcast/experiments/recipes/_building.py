"""How recipes make their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ...core import Latency
from ...sim import scenario
from ...workload import Micro
from ..cell import Label, RecipeCell
from ..recipe import Measure, Results


def planned(
    labels: dict[str, Label],
    protocol: str,
    network: str,
    *,
    latency: Latency | None = None,
    measures: tuple[str, ...] = ("load",),
    seed: int = 1,
    **settings: Any,
) -> RecipeCell:
    """One run. `latency` replaces the network of that name, which sets the timeouts."""
    made = scenario(protocol, network, records_wire="wire" in measures, seed=seed, **settings)
    if latency is not None:
        made = replace(made, network=latency)
    return RecipeCell(labels={"protocol": protocol, **labels, "seed": seed}, scenario=made, measures=measures)


def relabelled(cell: RecipeCell, **labels: Label) -> RecipeCell:
    """The same run, to be found by more labels."""
    return replace(cell, labels={**cell.labels, **labels})


def to_groups(count: int, of: int | None = None, **settings: Any) -> Micro:
    """Messages of 64 bytes to so many groups, drawn among the first `of`. Every protocol gets the same messages."""
    return Micro(count, count, targets=of or 0, own_stream=True, **settings)


def quotient(above: Measure, below: Measure) -> Measure:
    return lambda results: above(results) / below(results)


def percent(share: Measure) -> Measure:
    return lambda results: 100 * share(results)


def along(figure: str, axis: str, **labels: Label) -> Callable[[Results, float], float]:
    """Of a line: the figure of the cells whose label `axis` is the place on the horizontal axis."""
    return lambda results, place: results(figure, **{axis: int(place)}, **labels)


def ratio(figure: str, above: Mapping[str, Label], below: Mapping[str, Label]) -> Measure:
    """One cell's figure over another's."""
    return quotient(figure_of(figure, **above), figure_of(figure, **below))


def figure_of(figure: str, **labels: Label) -> Measure:
    return lambda results: results(figure, **labels)
