"""What several commands read from their arguments."""

from __future__ import annotations

from itertools import product
from pathlib import Path
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
RateOption = Annotated[
    float | None,
    typer.Option(help="Open loop: messages a second by all clients together, whatever comes back.", min=0.001),
]
_REPLAY = "replay:"
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
    if targets and kind.startswith(_REPLAY):
        raise UsageError("a replay has its own destinations: leave out --targets")
    if (destinations, payload, global_share) != (USUAL_DESTINATIONS, USUAL_PAYLOAD, None):
        raise UsageError(f"--destinations, --payload and --global are for the workload micro, not for {kind}")
    if kind.startswith(_REPLAY):
        return _parse_replay(Path(kind.removeprefix(_REPLAY)), own)
    return workload_of(kind, {"targets": targets, **own} if targets else own)


def _parse_replay(path: Path, options: dict[str, Any]) -> AnyWorkload:
    from ._replay import read_replay

    read = read_replay(path)
    known = {"timed": read.timed, "speed": read.speed}
    for name in options:
        if name not in known:
            raise UsageError(f"a replay has no option '{name}': it has {', '.join(known)}")
    chosen = {**known, **options}
    if not isinstance(chosen["timed"], bool) or not isinstance(chosen["speed"], int | float):
        raise UsageError("a replay has the options timed=true or false, and speed=2 or so")
    return msgspec.structs.replace(read, timed=chosen["timed"], speed=float(chosen["speed"]))


def messages_of(workload: AnyWorkload, given: int | None, usual: int) -> int:
    """How many are multicast: all of a workload that ends, unless somebody wants fewer."""
    return given or workload.length or usual


def interval_of(rate: float | None, clients: int) -> int:
    """Between two messages of a client, on average, in microseconds. 0: a closed loop."""
    return 0 if rate is None else max(1, round(clients * 1e6 / rate))


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
