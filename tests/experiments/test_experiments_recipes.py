"""All recipes: that each is well formed, and can be planned at both scales."""

from __future__ import annotations

import msgspec
import pytest

from amcast.core import UsageError
from amcast.experiments import RECIPES, Expectation, Measured, Recipe, RecipeCell, Results, judge, recipes_named
from amcast.experiments.measures import MEASURES
from amcast.experiments.outcome import summary_of, worst_first
from amcast.experiments.programs import PROGRAMS
from amcast.experiments.recipe import SCALES, MissingError

NAMES = [
    "delays",
    "oam-lan",
    "oam-groups",
    "oam-window",
    "oam-wan",
    "oam-reconfigure",
    "fastcast-local",
    "fastcast-lan-latency",
    "fastcast-lan-load",
    "fastcast-wan-latency",
    "fastcast-wan-load",
    "fastcast-ec2",
    "fastcast-social",
    "fastcast-table1",
    "byzcast-trees",
    "byzcast-scale",
    "byzcast-latency",
    "byzcast-mixed",
    "geopaxos-latency",
    "geopaxos-convoy",
    "geopaxos-placement",
    "geopaxos-failures",
    "geopaxos-lan",
    "kernel-echo",
    "kernel-paxos",
    "flexcast-overlays",
    "flexcast-locality",
    "flexcast-throughput",
    "flexcast-history",
    "flexcast-overhead",
    "oto-order",
    "oto-window",
    "oto-benefit",
]


def test_every_experiment_of_the_papers_has_a_recipe() -> None:
    assert list(RECIPES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_well_formed(name: str) -> None:
    recipe = RECIPES[name]
    for each in recipe.expects:
        assert sum(rule is not None for rule in (each.within, each.at_most, each.at_least)) == 1, each.what
    assert len({each.what for each in recipe.expects}) == len(recipe.expects), "each is told apart by its words"
    for chart in recipe.charts:
        assert not chart.names or len(chart.names) == len(chart.places)
    if recipe.missing:
        assert not recipe.expects
        return
    assert recipe.expects
    for scale in SCALES:
        cells = recipe.cells(scale)
        assert cells
        for cell in cells:
            assert (cell.scenario is None) == (cell.program in PROGRAMS)
            assert set(cell.measures) <= MEASURES.keys()
    # Tasks of Spark get cells as text: that must lose nothing.
    cell = recipe.cells("small")[0]
    assert msgspec.json.decode(msgspec.json.encode(cell), type=RecipeCell).key() == cell.key()


def test_names_stand_for_one_recipe_for_several_and_for_all() -> None:
    assert [each.name for each in recipes_named(["oto-order"])] == ["oto-order"]
    assert [each.name for each in recipes_named(["oto", "oto-order"])] == ["oto-order", "oto-window", "oto-benefit"]
    assert len(recipes_named(["all"])) == len(NAMES)
    with pytest.raises(UsageError, match="there is no recipe 'fast'"):
        recipes_named(["fast"])


# --------------------------------------------------------------------------------------------------- expectations


def expecting(**rule: float) -> Expectation:
    return Expectation(what="it", ours=lambda results: results("it"), published=10.0, why="so it is", **rule)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "ours", "holds", "deviation"),
    [
        ({"within": 0.1}, 11.0, True, 0.1),
        ({"within": 0.1}, 8.9, False, -0.11),
        ({"within": 0.0}, 10.0, True, 0.0),
        ({"at_most": 10.0}, 3.0, True, 0.0),
        ({"at_most": 10.0}, 12.0, False, 0.2),
        ({"at_least": 10.0}, 30.0, True, 0.0),
        ({"at_least": 10.0}, 5.0, False, -0.5),
    ],
)
def test_an_expectation_holds_by_its_rule(rule: dict[str, float], ours: float, holds: bool, deviation: float) -> None:
    made = expecting(**rule)
    assert made.holds(ours) == holds
    assert made.deviation(ours) == pytest.approx(deviation)


def cell(seed: int) -> RecipeCell:
    return RecipeCell(labels={"seed": seed}, program="delays", settings={"seed": seed})


def measured(**figures: float) -> Measured:
    return Measured(verdict="pass", why="", figures=figures)


def test_a_figure_is_the_median_of_the_cells_with_these_labels() -> None:
    cells = [cell(seed) for seed in (1, 2, 3)]
    results = Results(cells, {each.key(): measured(it=float(at)) for at, each in enumerate(cells)})
    assert (results("it"), results("it", seed=3)) == (1.0, 2.0)
    with pytest.raises(MissingError, match="no run measured it of seed 9"):
        results("it", seed=9)


def test_what_failed_is_told_and_the_worst_comes_first() -> None:
    def recipe(name: str, **rule: float) -> Recipe:
        return Recipe(name=name, title="", source="", about="", expects=[expecting(**rule)])

    good, bad = cell(1), cell(2)
    broken = Measured(verdict="fail", why="prefix-order: two orders", figures={})
    found = {good.key(): measured(it=14.0), bad.key(): broken}
    near = judge(recipe("near", within=0.5), [good], found)
    far = judge(recipe("far", within=0.1), [good], found)
    none = judge(recipe("none", within=0.1), [bad], found)
    assert (near.verdict, none.verdict) == ("pass", "fail")
    assert none.bad_runs == ("seed 2: fail, prefix-order: two orders",)
    ranked = worst_first([*near.outcomes, *far.outcomes, *none.outcomes])
    assert [(each.recipe, each.holds) for each in ranked] == [
        ("far", "differs"),
        ("none", "not measured"),
        ("near", "holds"),
    ]
    assert [each.why for each in ranked[::2]] == ["so it is", ""], "what holds needs no reason"
    summary = summary_of(ranked)
    assert (summary.holds, summary.differs, summary.not_measured, summary.delays_hold, summary.delays) == (
        1,
        1,
        1,
        1,
        3,
    )
