"""The program: commands, and what happens to errors and Ctrl-C."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..core import UsageError
from . import _check, _demo, _fuzz, _hops, _protocols, _sim
from ._output import USAGE, errors

app = typer.Typer(
    name="amcast",
    help="Atomic multicast: order messages across groups of replicated processes, and check that they were.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (_protocols, _sim, _check, _hops, _fuzz, _demo):
    module.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"amcast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app()
    except UsageError as error:
        errors.print(f"[red]error:[/red] {error}", soft_wrap=True, highlight=False, markup=True)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        errors.print("stopped", highlight=False)
        sys.exit(130)
