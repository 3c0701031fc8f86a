"""The papers' experiments: each is a recipe that runs it again, sets what was published beside what came out, and says
what of it holds.

A recipe is data in one file of `recipes/`: the runs (its cells), what the paper says of them (its expectations), and
the figure. Cells run like those of a study, in local processes or on Spark. What they measured decides the expectations
(`outcome.py`), and these make the report (`document.py`, `page.py`). A published figure that does not come out is a
result, not an error.
"""

from .cell import Measured, RecipeCell, run_recipe_cell
from .outcome import Outcome, RecipeOutcome, judge
from .recipe import Expectation, Recipe, Results, Scale
from .registry import RECIPES, recipes_named

__all__ = [
    "RECIPES",
    "Expectation",
    "Measured",
    "Outcome",
    "Recipe",
    "RecipeCell",
    "RecipeOutcome",
    "Results",
    "Scale",
    "judge",
    "recipes_named",
    "run_recipe_cell",
]
