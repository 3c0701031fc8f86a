"""The program `amcast`: its commands, and how it ends after an error or Ctrl-C."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..core import UsageError
from . import (
    _certs,
    _check,
    _client,
    _cluster,
    _demo,
    _errata,
    _folders,
    _fuzz,
    _hops,
    _protocols,
    _report,
    _sim,
    _swarm,
    _sweep,
    _tokens,
    _tracegen,
    _watch,
)
from ._output import STOPPED, USAGE, errors, line

app = typer.Typer(
    name="amcast",
    help="Atomic multicast: order messages across groups of replicated processes, and check that they were.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MODULES = (
    _protocols,
    _hops,
    _sim,
    _sweep,
    _check,
    _report,
    _fuzz,
    _errata,
    _swarm,
    _watch,
    _tracegen,
    _cluster,
    _folders,
    _client,
    _certs,
    _tokens,
    _demo,
)
for module in _MODULES:
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
    """Runs the command line. An error is one line that says what was wrong and what to do, and an exit code."""
    try:
        code = app(standalone_mode=False)
    except UsageError as error:
        _fail(str(error), USAGE)
    except typer.Abort:
        _fail("stopped", STOPPED)
    except Exception as error:
        # What the option parser raises tells people what they typed wrong; anything else is a bug of ours.
        if not hasattr(error, "format_message"):
            raise
        if not error.format_message():  # the help was shown instead
            sys.exit(USAGE)
        hint = "" if "--help" in str(error) else "; see --help"
        _fail(f"{error.format_message()}{hint}".replace("\n", " "), USAGE)
    else:
        if code == STOPPED:  # after Ctrl-C typer returns this exit code and prints nothing
            _fail("stopped", STOPPED)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(line(("error:", "red"), " ", message), soft_wrap=True)
    sys.exit(code)
