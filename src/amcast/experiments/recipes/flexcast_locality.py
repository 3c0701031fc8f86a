"""More locality."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, ratio
from ._flexcast import cell
from .flexcast_overlays import NOTES, WHY

_LOCALITIES = (90, 95, 99)
# 90th percentile of the first, second and third reply at each locality
TABLE_3 = {
    "O1": ((144, 131, 132), (398, 288, 227), (1_406, 1_307, 1_405)),
    "T1": ((229, 226, 224), (261, 255, 243), (307, 306, 303)),
    "distributed": ((335, 284, 241), (299, 275, 238), (373, 365, 310)),
}
_TITLES = {"O1": "FlexCast", "T1": "hierarchical", "distributed": "distributed"}


def _cells(scale: Scale) -> list[RecipeCell]:
    return [cell(system, locality, scale) for system in TABLE_3 for locality in _LOCALITIES]


def _line(system: str, nth: int) -> Line:
    def ours(results: Results, locality: float) -> float:
        return results(f"reply_{nth}_p90_ms", system=system, locality=int(locality))

    return Line(
        _TITLES[system], ours, dict(zip(map(float, _LOCALITIES), map(float, TABLE_3[system][nth - 1]), strict=True))
    )


RECIPE = Recipe(
    name="flexcast-locality",
    title="Latency by destination over the locality",
    source="FlexCast, Table 3 and Figure 7",
    about="As flexcast-overlays, with O1, T1 and Skeen's protocol, 90, 95 and 99 % locality.",
    scaled="12 transactions a client, until the first has made its own.",
    notes=NOTES,
    cells=_cells,
    expects=[
        *[
            Expectation(
                what=f"{_TITLES[system]}, {locality} % locality: 90th percentile of reply {nth}",
                ours=figure_of(f"reply_{nth}_p90_ms", system=system, locality=locality),
                published=row[at],
                unit="ms",
                within=0.3,
                basis="workload",
                why=WHY,
            )
            for system, rows in TABLE_3.items()
            for nth, row in enumerate(rows[:2], 1)
            for at, locality in enumerate(_LOCALITIES)
        ],
        *[
            Expectation(
                what=f"{locality} %: FlexCast's first reply over the {_TITLES[other]} one's, it wins",
                ours=ratio(
                    "reply_1_p90_ms", {"system": "O1", "locality": locality}, {"system": other, "locality": locality}
                ),
                published=TABLE_3["O1"][0][at] / TABLE_3[other][0][at],
                at_most=1.0,
                basis="delays",
                why=WHY,
            )
            for other in ("T1", "distributed")
            for at, locality in enumerate(_LOCALITIES)
        ],
        Expectation(
            what="90 %: FlexCast's third reply over the hierarchical one's, it is slowest there",
            ours=ratio("reply_3_p90_ms", {"system": "O1", "locality": 90}, {"system": "T1", "locality": 90}),
            published=1_406 / 307,
            at_least=1.0,
            basis="workload",
            why=WHY,
        ),
    ],
    charts=[
        Chart(
            f"Reply {nth}",
            _LOCALITIES,
            [_line(system, nth) for system in TABLE_3],
            "locality (%)",
            "90th percentile (ms)",
        )
        for nth in (1, 2, 3)
    ],
)
