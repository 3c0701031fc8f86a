"""What several commands read from their arguments."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any

import msgspec
import typer

from ..core import UsageError
from ..workload import KINDS, AnyWorkload, parse_destinations, workload_of

TargetsOption = Annotated[
    int, typer.Option(help="Messages go to the first so many groups; the others only help. 0: to all.", min=0)
]
GlobalOption = Annotated[
    float | None,
    typer.Option(
        "--global", help="The share of messages that go to the most groups; all others go to the fewest.", min=0, max=1
    ),
]


WorkloadOption = Annotated[
    str, typer.Option("--workload", help=f"What is multicast: {', '.join(KINDS)}, or replay:FILE.", metavar="NAME")
]
WorkloadOptions = Annotated[
    list[str] | None,
    typer.Option("--workload-option", "-w", help="An option of the workload, as name=value.", metavar="NAME=VALUE"),
]
USUAL_DESTINATIONS, USUAL_PAYLOAD = "1-2", 64


def parse_workload(
    kind: str,
    options: list[str] | None,
    destinations: str = USUAL_DESTINATIONS,
    payload: int = USUAL_PAYLOAD,
    targets: int = 0,
    global_share: float | None = None,
) -> AnyWorkload:
    """The microbenchmark has command line options of its own; all others have workload options alone."""
    own = parse_options(options or [], "locality=0.95")
    if kind == "micro":
        low, high = parse_destinations(destinations)
        usual = {"dst_min": low, "dst_max": high, "payload_bytes": payload, "targets": targets}
        return workload_of(kind, {**usual, "global_share": global_share, "own_stream": True, **own})
    if (destinations, payload, global_share) != (USUAL_DESTINATIONS, USUAL_PAYLOAD, None):
        raise UsageError(f"--destinations, --payload and --global are for the workload micro, not for {kind}")
    return workload_of(kind, {"targets": targets, **own} if targets else own)


def parse_workloads(kind: str | None, options: list[str] | None) -> tuple[AnyWorkload, ...] | None:
    """All combinations of the values that options have. None if there is no workload."""
    if kind is None:
        if options:
            raise UsageError(f"-w {options[0]} is an option of a workload: name it with --workload")
        return None
    several: list[list[str]] = []
    for pair in options or ():
        name, equals, values = pair.partition("=")
        several.append([f"{name}{equals}{value}" for value in values.split(",")])
    return tuple(parse_workload(kind, list(chosen)) for chosen in product(*several))


def check_seconds(seconds: float) -> float:
    """A time to wait, as users give it: -1 and nan would be none."""
    if not 0 < seconds < float("inf"):
        raise UsageError(f"a --timeout of {seconds:g} s is no time to wait: use a number above 0")
    return seconds


def parse_options(pairs: list[str], example: str = "wrong_guesses=true") -> dict[str, Any]:
    """Pairs `name=value`. Values are JSON; a value that is not JSON is a string."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"'{pair}' is no option: write name=value, for example {example}")
        try:
            options[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            options[key] = value
    return options
