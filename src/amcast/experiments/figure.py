"""The figure of a recipe. Needs the extra `report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .recipe import Chart, Line, MissingError, Recipe, Results

if TYPE_CHECKING:
    from ..pipeline.figures import Curve, Picture, ReproducedPanel


def draw(recipe: Recipe, results: Results) -> Picture | None:
    """None if the recipe has no figure, or nothing was measured for it."""
    from ..pipeline.figures import reproduced

    published = any(line.published for chart in recipe.charts for line in chart.lines)
    note = f"Compare with {recipe.source}." + (" What was published is drawn as diamonds." if published else "")
    return reproduced(recipe.name, recipe.title, note, [_panel(chart, results) for chart in recipe.charts])


def _panel(chart: Chart, results: Results) -> ReproducedPanel:
    from ..pipeline.figures import ReproducedPanel

    names = chart.names or [f"{place:,g}" for place in chart.places]
    curves = [_curve(line, chart, results) for line in chart.lines]
    return ReproducedPanel(chart.title, chart.places, names, curves, chart.across, chart.up, chart.has_bars)


def _curve(line: Line, chart: Chart, results: Results) -> Curve:
    from ..pipeline.figures import Curve

    ours: dict[float, float] = {}
    for place in chart.places:
        try:
            ours[place] = line.ours(results, place)
        except MissingError:
            continue
    return Curve(line.name, ours, {x: y for x, y in line.published.items() if x in chart.places})
