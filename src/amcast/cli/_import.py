"""`amcast import`: the trace of another system, in CSV or JSON lines, as a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
import typer

from .._extras import require
from ..check import PROPERTIES
from ..core import UsageError
from ..trace import TABLES
from ._output import (
    USAGE,
    JsonOption,
    MasterOption,
    RemoteOption,
    console,
    errors,
    line,
    print_json,
    progress,
    saying,
    table,
)

if TYPE_CHECKING:  # Spark takes a second to import: only commands that need it do
    from ..pipeline.foreign import Declared, ForeignTraceError, Imported
    from ..pipeline.foreign.sources import Source

Engine = Literal["memory", "spark"]


def register(app: typer.Typer) -> None:
    @app.command("import")
    def import_(
        files: Annotated[
            list[Path] | None, typer.Argument(help="Files .csv or .jsonl, or folders of them.", metavar="FILE...")
        ] = None,
        out: Annotated[Path | None, typer.Option(help="The new run folder.", metavar="RUN")] = None,
        tables: Annotated[
            list[str] | None,
            typer.Option("--table", help="Which table a file is, where its name does not say.", metavar="TABLE=FILE"),
        ] = None,
        columns: Annotated[
            list[str] | None,
            typer.Option("--column", help="What the files call a column: msg=tx_id.", metavar="NAME=THEIRS"),
        ] = None,
        time_unit: Annotated[str, typer.Option(help="Of times: us, ms, s, ns or iso (ISO 8601).")] = "us",
        first_position: Annotated[int, typer.Option(help="From which number positions count.", min=0)] = 0,
        groups: Annotated[
            list[str] | None,
            typer.Option("--group", help="A group and all its processes; once for each.", metavar="NAME=PROCESS,..."),
        ] = None,
        correct: Annotated[
            str | None, typer.Option(help="Processes that never crashed for good.", metavar="PROCESS,...")
        ] = None,
        complete: Annotated[
            bool,
            typer.Option("--complete", help="The run came to its end: what is not delivered now never will be."),
        ] = False,
        claims: Annotated[
            str | None, typer.Option(help="What the system promises besides: timestamps, fifo, ...", metavar="NAME,...")
        ] = None,
        missing: Annotated[
            list[str] | None, typer.Option(help="What the trace lacks, in words; then nothing passes.", metavar="TEXT")
        ] = None,
        protocol: Annotated[str | None, typer.Option(help="What the system is called.")] = None,
        run_id: Annotated[str | None, typer.Option(help="What the run is called; else as its folder.")] = None,
        info: Annotated[
            Path | None, typer.Option(help="A file that says all this, as run.json does, with names for numbers.")
        ] = None,
        engine: Annotated[Engine, typer.Option(help="In this process, or on Spark for files of any size.")] = "memory",
        master: MasterOption = None,
        remote: RemoteOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make a run of the trace of another system, for `amcast check` and all other commands that read runs.

        One file for each table, recognised by its name (multicasts.csv, deliveries.csv, operations.csv), or many;
        `amcast schema` says which columns there are. Deliveries alone will do, and operations alone: what they can't
        show is unknown then.
        Processes, groups, messages and clients may have any names. A run.json in a folder is read as --info.

        All errors are told at once, with file, line and column, and nothing is written then (exit code 2).

        Examples:

        [bold]amcast import trace/ --complete --out runs/theirs[/bold]

        [bold]amcast import deliveries.csv --column msg=tx_id --out runs/theirs[/bold]

        [bold]amcast import trace/ --info about.json --engine spark --out runs/big[/bold]
        """
        require("spark", "amcast import")
        from ..pipeline.foreign import ForeignTraceError, find_sources
        from ..pipeline.foreign.settle import extended
        from ..pipeline.foreign.sources import TimeUnit, declared_file

        if out is None:
            raise UsageError("say where the run goes: --out RUN")
        if engine == "memory" and (master or remote):
            raise UsageError("--master and --remote go with --engine spark")
        if time_unit not in get_args(TimeUnit):
            raise UsageError(f"--time-unit {time_unit}: choose from {', '.join(get_args(TimeUnit))}")
        unit: TimeUnit = msgspec.convert(time_unit, TimeUnit)
        paths = files or []
        if not paths and not tables:
            raise UsageError("name the files of the trace, or their folder")
        try:
            sources = find_sources(paths, _tables(tables), _columns(columns), unit, first_position)
            declared = _declared(info or declared_file(paths), groups, correct, claims)
            declared = extended(declared, complete=complete, missing=missing, protocol=protocol, run_id=run_id)
            made = _run(sources, declared, out, engine, master, remote, as_json)
        except ForeignTraceError as error:
            _tell(error)
            raise typer.Exit(USAGE) from error
        if as_json:
            print_json(_document(made))
        else:
            _show(made)


def _run(
    sources: list[Source],
    declared: Declared,
    out: Path,
    engine: Engine,
    master: str | None,
    remote: str | None,
    quiet: bool,
) -> Imported:
    from ..pipeline import import_on_spark, running_spark
    from ..pipeline.foreign import import_in_memory

    if engine == "memory":
        with progress(quiet) as bar:
            task = bar.add_task("bytes", total=sum(source.size - source.begins for source in sources), note="")
            return import_in_memory(sources, declared, out, lambda count: bar.advance(task, count))
    with saying(quiet) as say, running_spark(master, remote) as spark:
        return import_on_spark(spark, sources, declared, out, say)


# ---------------------------------------------------------------------------------------------- options


def _declared(file: Path | None, groups: Sequence[str] | None, correct: str | None, claims: str | None) -> Declared:
    from ..pipeline.foreign import Declared, read_declared
    from ..pipeline.foreign.settle import extended

    declared = Declared() if file is None else read_declared(file)
    members: dict[str, list[str | int]] = {}
    for text in groups or ():
        name, names = _pair("--group", text, "NAME=PROCESS,...")
        members.setdefault(name, []).extend(_names(names))
    promised = declared.claims if claims is None else _names(claims)
    for claim in promised:
        if claim not in PROPERTIES:
            raise UsageError(f"no property is called {claim}: choose from {', '.join(PROPERTIES)}")
    return extended(declared, groups=members, correct=None if correct is None else _names(correct), claims=promised)


def _tables(texts: Sequence[str] | None) -> dict[Path, str]:
    found: dict[Path, str] = {}
    for text in texts or ():
        name, file = _pair("--table", text, "TABLE=FILE")
        if name not in TABLES:
            raise UsageError(f"--table {text}: no table is called {name}: choose from {', '.join(TABLES)}")
        found[Path(file)] = name
    return found


def _columns(texts: Sequence[str] | None) -> dict[str, str]:
    known = {name for names in TABLES.values() for name in names.names}
    known |= {f"{table}.{name}" for table, schema in TABLES.items() for name in schema.names}
    found: dict[str, str] = {}
    for text in texts or ():
        name, theirs = _pair("--column", text, "NAME=THEIRS")
        if name not in known:
            raise UsageError(f"--column {text}: no column is called {name}: see amcast schema")
        found[name] = theirs
    return found


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise UsageError(f"{option} {text}: write {option} {form}")
    return name.strip(), value.strip()


def _names(text: str) -> list[Any]:
    return [name.strip() for name in text.split(",") if name.strip()]


# ----------------------------------------------------------------------------------------------- output


def _tell(error: ForeignTraceError) -> None:
    for text in error.lines():
        errors.print(line(("error:", "red"), " ", text), soft_wrap=True)
    errors.print(line("nothing was written"), soft_wrap=True)


def _document(made: Imported) -> dict[str, Any]:
    return {
        "out": made.out,
        "run_id": made.info.run_id,
        "rows": made.rows,
        "groups": len(made.info.groups),
        "processes": sum(len(group.processes) for group in made.info.groups),
        "complete": made.info.complete,
        "claims": list(made.info.claims),
        "words": made.words,
        "unproven": made.info.unproven,
    }


def _show(made: Imported) -> None:
    shown = table("table", "rows")
    for name, rows in made.rows.items():
        if rows:
            shown.add_row(name, f"{rows:,}")
    console.print(shown)
    for text in made.words:
        console.print(line(text), soft_wrap=True)
    console.print(line("verify it with: ", (f"amcast check {made.out}", "bold")), soft_wrap=True)
