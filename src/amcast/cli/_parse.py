"""What several commands read from their arguments."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from ..core import UsageError
from ..workload import Micro, parse_destinations

TargetsOption = Annotated[
    int, typer.Option(help="Messages go to the first so many groups; the others only help. 0: to all.", min=0)
]
GlobalOption = Annotated[
    float | None,
    typer.Option(
        "--global", help="The share of messages that go to the most groups; all others go to the fewest.", min=0, max=1
    ),
]


def parse_workload(destinations: str, payload: int, targets: int, global_share: float | None) -> Micro:
    return Micro(*parse_destinations(destinations), payload, targets, global_share)


def check_seconds(seconds: float) -> float:
    """A time to wait, as users give it: -1 and nan would be none."""
    if not 0 < seconds < float("inf"):
        raise UsageError(f"a --timeout of {seconds:g} s is no time to wait: use a number above 0")
    return seconds


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """Pairs `name=value`. Values are JSON; a value that is not JSON is a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"'{pair}' is no option: write name=value, for example wrong_guesses=true")
        try:
            options[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[key] = value
    return options
