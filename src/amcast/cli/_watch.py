"""`amcast watch`: verify a run while it is being written."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from .._extras import require
from ..trace import read_run_info
from ._output import EXIT_CODES, MasterOption, RemoteOption, coloured, console, json_line, line, table


def register(app: typer.Typer) -> None:
    @app.command("watch")
    def watch(
        run: Annotated[Path, typer.Argument(help="The folder of a run that grows.", metavar="DIR")],
        checkpoint: Annotated[
            Path | None, typer.Option(help="Keep the state here; a watch that was stopped goes on from it.")
        ] = None,
        once: Annotated[bool, typer.Option("--once", help="Verify what is there now, and end.")] = False,
        trigger: Annotated[float, typer.Option(help="Seconds between two looks at the folder.", min=0.05)] = 1.0,
        patience: Annotated[
            int, typer.Option(help="How many looks to wait for a late file before it counts as lost.", min=1)
        ] = 1,
        master: MasterOption = None,
        remote: RemoteOption = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line for each event.")] = False,
    ) -> None:
        """Verify a run while it is being written, and report each violation once.

        Any new Parquet file in multicasts/, deliveries/ and faults/ is read; files must appear whole (write, then
        rename). Positions, integrity, replicas, order and timestamps are checked as rows arrive; agreement and validity
        when run.json says that the run is complete and everything is read. With --checkpoint a watch can be killed and
        started again: it repeats and misses nothing, and every violation is one line of violations.jsonl there. Exit
        codes: 0 all hold, 1 one is violated, 3 unknown (not complete).

        Examples:

        [bold]amcast watch runs/live --checkpoint runs/live-watch --json[/bold]
        """
        require("spark", "amcast watch")
        from ..pipeline.spark import running_spark
        from ..pipeline.stream import Watch

        read_run_info(run)  # raises what is wrong, before Spark starts
        with ExitStack() as stack:
            if checkpoint is None:
                checkpoint = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amcast-watch-")))
            spark = stack.enter_context(running_spark(master, remote, "amcast watch"))
            screen = _Lines() if as_json else stack.enter_context(_Screen(str(run)))
            watched = Watch(spark, run, checkpoint, screen.show, time.time, patience)
            verdict = watched.run_once() if once else watched.run(trigger)
            if once and not watched.state.finished:
                screen.show(watched.status("end"))
        raise typer.Exit(EXIT_CODES[verdict])


class _Lines:
    """Output for programs: each event as one line of JSON."""

    def show(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json_line(event) + "\n")
        sys.stdout.flush()


class _Screen:
    """Output for people: violations as they are found, and below them the counts and the verdict so far."""

    def __init__(self, run: str) -> None:
        self._title = line(f"watching {run}")
        self._title.overflow, self._title.no_wrap = "ellipsis", True
        self._lag = 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> _Screen:
        if console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, event: dict[str, Any]) -> None:
        if event["event"] == "violation":
            console.print(line((event["property"], "red"), ": ", event["explanation"]))
            return
        self._lag = event.get("lag_s", self._lag)
        made = table("verified", "in flight", "deliveries", "held", "lag", "verdict", title=self._title)
        counts = (f"{event[name]:,}" for name in ("verified", "in_flight", "deliveries", "held"))
        made.add_row(*counts, f"{self._lag:.1f} s", coloured(event["verdict"]))
        if event["event"] == "end":
            self._live.stop()
            console.print(made)
            properties = table("property", "verdict", "")
            for name, verdict in event["properties"].items():
                properties.add_row(name, coloured(verdict), event["reasons"].get(name, ""))
            console.print(properties)
        elif console.is_terminal:
            self._live.update(made, refresh=True)
