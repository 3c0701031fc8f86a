"""How often the optimistic order is the final one, with and without delay compensation."""

from __future__ import annotations

from ..cell import RecipeCell
from ..recipe import Chart, Expectation, Line, Recipe, Results, Scale
from ._building import figure_of, percent, quotient
from ._oto import DISTANT, NEAR, two_clusters

_RATES = (100, 400)
_SIGMAS = (1, 3, 10)


def _cells(scale: Scale) -> list[RecipeCell]:
    return [two_clusters(scale, s, rate, c) for s in _SIGMAS for rate in _RATES for c in (False, True)]


def _chart(k: int, process: str, who: str) -> Chart:
    def line(sigma: int, compensation: str) -> Line:
        def ours(results: Results, rate: float) -> float:
            share = results(f"right_k{k}_{process}", sigma=sigma, rate=int(rate), compensation=compensation)
            return 100 * share

        published = {100.0: 82.5 if compensation == "yes" else 11.2} if (k, sigma, who) == (1, 3, "distant") else {}
        words = "compensated" if compensation == "yes" else "as they come"
        return Line(f"sigma {sigma} %, {words}", ours, published)

    lines = [line(sigma, compensation) for compensation in ("no", "yes") for sigma in _SIGMAS]
    return Chart(f"A {who} process, batches of {k}", _RATES, lines, "messages/s", "right optimistic deliveries (%)")


RECIPE = Recipe(
    name="oto-order",
    title="Right optimistic deliveries",
    source="Optimistic total order, Figures 5 and 6",
    about="Two clusters of 5 processes, 20 ms inside, 40 ms across; all multicast to all, exponential interarrival.",
    scaled="2,000 messages a run instead of 100 s, of which the second half is measured.",
    notes="The number of processes was not published: five in each cluster fit the paper's Table 1. A delivery is "
    "right "
    "if it stands at the same position among optimistic and final deliveries.",
    cells=_cells,
    expects=[
        Expectation(
            what="distant process, sigma 3 %, 100 msg/s, without compensation",
            ours=percent(figure_of(f"right_k1_{DISTANT}", sigma=3, rate=100, compensation="no")),
            published=11.2,
            unit="%",
            within=0.1,
            why="An unpublished number of processes: the share falls with it. It is within two points.",
        ),
        Expectation(
            what="distant process, sigma 3 %, 100 msg/s, with compensation",
            ours=percent(figure_of(f"right_k1_{DISTANT}", sigma=3, rate=100, compensation="yes")),
            published=82.5,
            unit="%",
            within=0.1,
        ),
        *[
            Expectation(
                what=f"sigma {sigma} %, {rate} msg/s: a distant process with compensation over a near one, about the "
                f"same",
                ours=quotient(
                    figure_of(f"right_k1_{DISTANT}", sigma=sigma, rate=rate, compensation="yes"),
                    figure_of(f"right_k1_{NEAR}", sigma=sigma, rate=rate, compensation="yes"),
                ),
                published=1.0,
                within=0.1,
                why="Of a figure the paper says that the two are very close. Both are still learning here when the "
                "run ends.",
            )
            for sigma, rate in ((3, 100), (3, 400))
        ],
        *[
            Expectation(
                what=f"sigma {sigma} %, 400 msg/s, distant: right pairs over right single deliveries, with "
                f"compensation",
                ours=quotient(
                    figure_of(f"right_k2_{DISTANT}", sigma=sigma, rate=400, compensation="yes"),
                    figure_of(f"right_k1_{DISTANT}", sigma=sigma, rate=400, compensation="yes"),
                ),
                published=1.0,
                at_least=1.0,
                why="The paper does not say how batches are compared. Here a pair of positions is right if both of its "
                "messages were guessed for it, in either order: two neighbours that change places across the border "
                "of a "
                "pair make two pairs wrong, so pairs gain little.",
            )
            for sigma in (3, 10)
        ],
        Expectation(
            what="distant process, sigma 10 %, 400 msg/s: not perfect even with compensation",
            ours=figure_of(f"right_k1_{DISTANT}", sigma=10, rate=400, compensation="yes"),
            published=1.0,
            at_most=0.9,
        ),
    ],
    charts=[_chart(1, DISTANT, "distant"), _chart(1, NEAR, "near"), _chart(2, DISTANT, "distant")],
)
