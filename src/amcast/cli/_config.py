"""`amcast config check` and `show`: a cluster's configuration, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ._cluster import file_of_cluster
from ._output import USAGE, JsonOption, console, line, print_json

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.config import ClusterConfig
    from ..net.config_check import Findings

_NAME = "cluster.toml"
FileArgument = Annotated[
    Path | None,
    typer.Argument(help=f"A {_NAME}, or a folder with one; if not given, that of `amcast up`, or {_NAME}."),
]


def register(app: typer.Typer) -> None:
    config = typer.Typer(
        help="A cluster's configuration: look at it before anything starts.\n\n"
        "Example:\n\n[bold]amcast config check cluster.toml[/bold]",
        no_args_is_help=True,
    )
    app.add_typer(config, name="config")

    @config.command("check")
    def check(
        file: FileArgument = None,
        id_: Annotated[
            list[str] | None,
            typer.Option("--id", help="A process that is to run here: its certificate and its data folder must be."),
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Check a cluster.toml and all that it names: certificates, tokens, the application, addresses, data folders.

        All problems are shown at once. The exit code is 2 if there are errors, and 0 if there are none or only
        warnings. The application is loaded as a node would load it; nothing is changed.

        Examples:

        [bold]amcast config check cluster.toml[/bold]

        [bold]amcast config check /etc/amcast/cluster.toml --id g1.p0 --json[/bold]
        """
        from ..net.config_check import check_config

        found = check_config(_file(file), tuple(id_ or ()))
        if as_json:
            print_json({"file": found.file, "ok": not found.errors, "errors": found.errors, "warnings": found.warnings})
        else:
            _show(found)
        if found.errors:
            raise typer.Exit(USAGE)

    @config.command("show")
    def show(file: FileArgument = None, as_json: JsonOption = False) -> None:
        """Print a configuration with all defaults, as a node would use it.

        Examples:

        [bold]amcast config show cluster.toml[/bold]

        [bold]amcast config show .amcast --json[/bold]
        """
        from ..net.config import format_config, load_config

        found = load_config(_file(file))
        if as_json:
            print_json(_document(found))
        else:
            typer.echo(format_config(found), nl=False)


def _file(given: Path | None) -> Path:
    path = file_of_cluster(_NAME, given)
    return path / _NAME if path.is_dir() else path


def _document(config: ClusterConfig) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(config)
    return {name: value for name, value in fields.items() if name not in ("folder", "name")}


def _show(found: Findings) -> None:
    for error in found.errors:
        console.print(line(("error:", "red"), f" {error}"), soft_wrap=True)
    for warning in found.warnings:
        console.print(line(("warning:", "yellow"), f" {warning}"), soft_wrap=True)
    if found.errors or found.config is None:
        console.print(line(f"{found.file} can't be used as it is"), soft_wrap=True)
        return
    processes, groups = len(found.config.process), len(found.config.topology().groups)
    counts = f"{_count(processes, 'process', 'processes')} in {_count(groups, 'group', 'groups')}"
    console.print(
        line((f"{found.file} can be used", "green"), f": {counts}, {found.config.protocol}"),
        soft_wrap=True,
        highlight=False,
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
