"""All recipes, in the order of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import UsageError
from .recipe import Recipe
from .recipes import ALL

RECIPES: Mapping[str, Recipe] = {each.name: each for each in ALL}


def recipes_named(names: Sequence[str]) -> list[Recipe]:
    """Recipes by their names; `all` and the beginnings of names, such as `fastcast`, stand for several."""
    found: dict[str, Recipe] = {}
    for name in names:
        here = [each for each in ALL if name in ("all", each.name)]
        here = here or [each for each in ALL if each.name.startswith(f"{name}-")]
        if not here:
            raise UsageError(f"there is no recipe '{name}': `amcast reproduce --list` names them")
        found.update({each.name: each for each in here})
    return list(found.values())
