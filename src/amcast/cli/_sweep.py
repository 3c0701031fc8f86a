"""`amcast sweep`: a study of protocols, as one table and one figure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import msgspec
import typer

from .._extras import require
from ..check import worst
from ..core import PRESETS, UsageError
from ..studies import Cell, Result, Study, StudyFolder, cells_of, read_study, run_cell, table_of
from ..studies.figure import draw, panel_label, system_of
from ..studies.local import run_in_processes
from ..studies.table import Row, latency_column
from ..trace.latency import AT
from ..workload import KINDS
from ._output import (
    EXIT_CODES,
    JsonOption,
    MasterOption,
    RemoteOption,
    coloured,
    console,
    errors,
    line,
    print_json,
    progress,
    table,
)
from ._parse import parse_workloads

Engine = Literal["local", "spark"]
At = Literal["client", "first-replica", "last-replica"]

_ROOT = Path("studies")
_SHOWN_MAX = 40
_WHY_MAX = 5
_TITLE_MAX = 14  # where a title is longer, a line of the table would not fit into a terminal: names stand instead

_LOADS = ("clients", "outstanding", "rate_per_s")
_HEADINGS = {
    "network": "network",
    "client_region": "clients in",
    "clients": "clients",
    "outstanding": "in flight",
    "rate_per_s": "messages/s",
}

Take = Callable[[Cell, Result], None]


def _usual(name: str) -> str:
    value = getattr(Study(), name)
    return f"{', '.join(map(str, value)) if isinstance(value, tuple) else value} if not given"


def register(app: typer.Typer) -> None:
    @app.command("sweep")
    def sweep(
        plan: Annotated[
            Path | None, typer.Option(help="A study as a TOML file; options that are given as well count instead.")
        ] = None,
        protocols: Annotated[
            str | None, typer.Option("--protocol", "-p", help=f"Protocols, or all; {_usual('protocols')}.")
        ] = None,
        destinations: Annotated[
            str | None,
            typer.Option(help=f"How many groups a message goes to, such as 2,1-3; {_usual('destinations')}."),
        ] = None,
        workload: Annotated[
            str | None,
            typer.Option("--workload", help=f"Instead: {', '.join(KINDS)}, or replay:FILE.", metavar="NAME"),
        ] = None,
        workload_option: Annotated[
            list[str] | None,
            typer.Option(
                "--workload-option",
                "-w",
                help="An option of the workload, with one value or several: locality=0.9,0.99.",
                metavar="NAME=VALUE",
            ),
        ] = None,
        networks: Annotated[
            str | None, typer.Option("--network", help=f"Of {', '.join(PRESETS)}; {_usual('networks')}.")
        ] = None,
        client_regions: Annotated[
            str | None,
            typer.Option("--client-region", help="Where all clients are, such as R1,R2; all regions if not given."),
        ] = None,
        clients: Annotated[str | None, typer.Option(help=f"Numbers of clients; {_usual('clients')}.")] = None,
        outstanding: Annotated[
            str | None,
            typer.Option(help=f"Messages that each client has in flight, such as 1,8; {_usual('outstanding')}."),
        ] = None,
        rates: Annotated[
            str | None,
            typer.Option("--rate", help="Instead: messages a second by all clients together, such as 100,1000."),
        ] = None,
        seeds: Annotated[
            int | None, typer.Option(help=f"How many seeds each combination runs with; {_usual('seeds')}.")
        ] = None,
        first_seed: Annotated[int | None, typer.Option(help=f"The first seed; {_usual('first_seed')}.")] = None,
        groups: Annotated[int | None, typer.Option(help=f"Number of groups; {_usual('groups')}.")] = None,
        replicas: Annotated[
            int | None, typer.Option(help="Processes per group; the protocol's usual number if not given.")
        ] = None,
        messages: Annotated[
            int | None, typer.Option(help=f"Messages of each cell, by all its clients; {_usual('messages')}.")
        ] = None,
        payload: Annotated[int | None, typer.Option(help=f"Bytes of payload; {_usual('payload_bytes')}.")] = None,
        cpu_us: Annotated[float | None, typer.Option(help="CPU time to receive or send a message; 0: none.")] = None,
        latency: Annotated[
            At, typer.Option(help="Which latency the figure shows; the table has all.")
        ] = "last-replica",
        engine: Annotated[Engine, typer.Option(help="In processes of this machine, or as Spark jobs.")] = "local",
        jobs: Annotated[int, typer.Option(help="Local processes to use; all cores if 0.", min=0)] = 0,
        master: MasterOption = None,
        remote: RemoteOption = None,
        out: Annotated[
            Path | None, typer.Option(help="The study's folder; studies/NAME if not given.", metavar="DIR")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Simulate every combination of protocols, destinations, networks, loads and seeds; compare their latencies.

        Each cell is one run, which is checked. The folder gets one table (results.csv, results.parquet) and one figure
        (figure.svg, figure.png; it needs the extra "report"). Finished cells are kept: the same command goes on where
        it was stopped, and more seeds or values in the same folder run only what is new. Exit codes: 0 all cells pass,
        1 one fails, 3 unknown.

        Examples:

        [bold]amcast sweep[/bold]   BaseCast, FastCast and Multi-Paxos on a wide-area network

        [bold]amcast sweep -p fastcast,basecast --network lan,wan --clients 1,8,64[/bold]

        [bold]amcast sweep -p all --client-region R1,R2 --latency client[/bold]

        [bold]amcast sweep -p flexcast,skeen --workload gtpcc -w locality=0.9,0.99[/bold]

        [bold]amcast sweep --plan study.toml --out studies/mine --seeds 10[/bold]

        [bold]amcast sweep -p all --seeds 100 --engine spark[/bold]
        """
        given = {
            "protocols": _texts(protocols),
            "destinations": _texts(destinations),
            "workloads": parse_workloads(workload, workload_option),
            "networks": _texts(networks),
            "client_regions": _texts(client_regions),
            "clients": _numbers(clients, "--clients", int),
            "outstanding": _numbers(outstanding, "--outstanding", int),
            "rates": _numbers(rates, "--rate", float),
            "seeds": seeds,
            "first_seed": first_seed,
            "groups": groups,
            "replicas": replicas,
            "messages": messages,
            "payload_bytes": payload,
            "cpu_us": cpu_us,
        }
        base = Study() if plan is None else read_study(plan)
        study = msgspec.structs.replace(base, **{name: value for name, value in given.items() if value is not None})
        cells = cells_of(study)
        if engine == "local" and (master or remote):
            raise UsageError("--master and --remote are for --engine spark: add it, or leave them out")
        if engine == "spark":
            require("spark", "amcast sweep --engine spark")
        folder = StudyFolder(out or _usual_place(study, plan))
        made, resumed = _run(study, cells, folder, engine, jobs, master, remote, as_json)
        _draw(made, folder, latency.replace("-", "_"))
        document = _document(made, folder, resumed)
        if as_json:
            print_json(document)
        else:
            _show(document)
        raise typer.Exit(EXIT_CODES[document["verdict"]])


def _texts(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _numbers(text: str | None, option: str, kind: type[int] | type[float]) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text}: write numbers with commas between, such as 1,8") from None


def _usual_place(study: Study, plan: Path | None) -> Path:
    """The same study has the same folder, so that the same command goes on."""
    digest = hashlib.sha256(msgspec.json.encode(study)).hexdigest()[:8]
    return _ROOT / f"{'sweep' if plan is None else plan.stem}-{digest}"


def _run(
    study: Study,
    cells: Sequence[Cell],
    folder: StudyFolder,
    engine: Engine,
    jobs: int,
    master: str | None,
    remote: str | None,
    quiet: bool,
) -> tuple[list[Row], int]:
    """The table, and how many cells were finished before."""
    with folder.writing(study) as finished:
        todo = [cell for cell in cells if cell.key() not in finished]
        resumed = len(cells) - len(todo)
        with _telling_progress(len(cells), resumed, quiet) as tell:

            def take(cell: Cell, result: Result) -> None:
                folder.add(cell.key(), result)
                finished[cell.key()] = result
                tell(result)

            if engine == "spark" and todo:
                _on_spark(todo, take, master, remote)
            else:
                for cell, result in run_in_processes(todo, jobs, run_cell):
                    take(cell, result)
        made = table_of(cells, finished)
        folder.write(made)
    return made, resumed


def _on_spark(todo: Sequence[Cell], take: Take, master: str | None, remote: str | None) -> None:
    from ..pipeline.spark import running_spark
    from ..studies.on_spark import run_cell_text, run_on_spark

    with running_spark(master, remote, "amcast sweep") as spark:
        run_on_spark(spark, todo, take, run_cell_text, Result)


@contextmanager
def _telling_progress(count: int, resumed: int, quiet: bool) -> Iterator[Callable[[Result], None]]:
    done, bad = resumed, 0
    with progress(quiet) as bar:
        task = bar.add_task("cells", total=count, completed=resumed, note="")

        def tell(result: Result) -> None:
            nonlocal done, bad
            done, bad = done + 1, bad + (result.verdict != "pass")
            bar.update(task, completed=done, note=f"{bad} did not pass" if bad else "")

        try:
            yield tell
        except KeyboardInterrupt:
            bar.stop()
            errors.print(line(f"{done} of {count} cells are finished and kept: the same command goes on there"))
            raise


def _draw(made: Sequence[Row], folder: StudyFolder, at: str) -> None:
    """The table is there already: where plotting is not installed, it must do."""
    try:
        require("report", "the figure")
        picture = draw(made, at)
    except ImportError as error:
        errors.print(line(("warning:", "yellow"), f" there is no figure: {error}"), soft_wrap=True)
        return
    if picture is not None:
        folder.write_figure(picture.svg, picture.png)


# ------------------------------------------------------------------------------------------------- output


def _document(made: Sequence[Row], folder: StudyFolder, resumed: int) -> dict[str, Any]:
    return {
        "verdict": worst({row["verdict"] for row in made}),
        "out": str(folder.folder),
        "files": folder.files(),
        "cells": len(made),
        "resumed_cells": resumed,
        "rows": list(made),
    }


def _show(document: dict[str, Any]) -> None:
    rows: list[dict[str, Any]] = document["rows"]
    columns = [name for name in ("network", "client_region", *_LOADS) if len({row[name] for row in rows}) > 1]
    called = "protocol_title" if all(len(row["protocol_title"]) <= _TITLE_MAX for row in rows) else "protocol"
    same: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row[called], system_of(row)[1], *(row[name] for name in columns))
        same.setdefault(key, []).append(row)
    seeds = len({row["seed"] for row in rows})
    console.print(
        line(("median latency (ms)", "bold"), f", {_conditions(rows[0], columns)}, {_counted(seeds, 'seed')}")
    )
    shown = table("protocol", "to", *(_HEADINGS[name] for name in columns), *AT.values(), "verdict")
    for key, group in list(same.items())[:_SHOWN_MAX]:
        words = ["" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in key]
        times = (_middle([row[latency_column(at, "p50")] for row in group if row["verdict"] == "pass"]) for at in AT)
        shown.add_row(*words, *times, coloured(worst({row["verdict"] for row in group})))
    console.print(shown)
    if len(same) > _SHOWN_MAX:
        console.print(f"... and {len(same) - _SHOWN_MAX} more rows in the table")
    _show_bad([row for row in rows if row["verdict"] != "pass"])
    resumed = f", {document['resumed_cells']} of them from before" if document["resumed_cells"] else ""
    console.print(line(f"{_counted(len(rows), 'cell')}{resumed}: ", coloured(document["verdict"])))
    for file in document["files"]:
        console.print(line(file), soft_wrap=True)


def _show_bad(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows[:_WHY_MAX]:
        what = f"{', '.join(system_of(row))}, {_conditions(row, [])}, seed {row['seed']}"
        console.print(line(coloured(row["verdict"]), f" {what}: {row['why']}"))
    if len(rows) > _WHY_MAX:
        console.print(f"... and {len(rows) - _WHY_MAX} more that did not pass")


def _conditions(row: dict[str, Any], but: Sequence[str]) -> str:
    """What is the same for all rows, in words."""
    unused = [name for name in ("client_region", "outstanding", "rate_per_s") if row[name] is None]
    return panel_label(row, [name for name in ("network", "client_region", *_LOADS) if name not in (*but, *unused)])


def _middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{median(known):.3f}" if known else "-"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
