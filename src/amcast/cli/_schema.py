"""`amcast schema`: the format of a run, for whoever writes one."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core import UsageError
from ..trace.document import example_text, schema_document
from ._output import JsonOption, console, line, print_json, table


def register(app: typer.Typer) -> None:
    @app.command("schema")
    def schema(
        name: Annotated[str | None, typer.Argument(help="One table; all, and the rest, if not given.")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Print the format of a run: tables with columns, types and meanings; properties; `run.json` by example.

        A run is a folder of Parquet tables that any program can write. `amcast import` makes one of CSV or JSON lines.

        Examples:

        [bold]amcast schema deliveries[/bold]

        [bold]amcast schema --json[/bold]
        """
        document = schema_document()
        tables = document["tables"]
        if name is not None and name not in tables:
            raise UsageError(f"no table is called {name}: choose from {', '.join(tables)}")
        if as_json:
            print_json(document if name is None else tables[name])
            return
        for each in tables if name is None else (name,):
            _show_table(each, tables[each])
        if name is None:
            _show_rest(document)


def _show_table(name: str, described: dict[str, object]) -> None:
    optional = ", may be left out" if described["optional"] else ""
    console.print(line((name, "bold"), f" (folder of Parquet files{optional}): {described['meaning']}"))
    made = table("column", "type", "null", "meaning")
    columns = described["columns"]
    assert isinstance(columns, list)
    for column in columns:
        made.add_row(column["name"], column["type"], "yes" if column["nullable"] else "no", line(column["meaning"]))
    console.print(made)
    console.print()


def _show_rest(document: dict[str, dict[str, dict[str, object]]]) -> None:
    console.print(
        line(("what is done with objects", "bold"), ": the column operation; and transaction, which has several")
    )
    made = table("operation", "object", "arguments", "result", "meaning")
    for name, described in document["operations"].items():
        arguments = described["arguments"]
        assert isinstance(arguments, list)
        told = str(described["result"]), line(str(described["meaning"]))
        made.add_row(name, str(described["object"]), ", ".join(arguments) or "none", *told)
    console.print(made)
    console.print()
    console.print(line(("properties", "bold"), ": judged always, or if `claims` in run.json has them"))
    made = table("property", "judged", "meaning")
    for name, described in document["properties"].items():
        made.add_row(name, str(described["judged"]), line(str(described["meaning"])))
    console.print(made)
    console.print()
    console.print(line(("run.json", "bold")))
    made = table("field", "meaning")
    for name, meaning in document["run.json"]["fields"].items():
        made.add_row(name, line(str(meaning)))
    console.print(made)
    console.print()
    console.print(line("by example (other fields are kept as they are):"))
    console.print(example_text(), highlight=False)
