"""The program `amcast`: its commands, and how it ends after an error or Ctrl-C."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..core import UsageError
from ._output import STOPPED, USAGE, errors, line

# The modules and their commands, in the order of the help.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "_protocols": ("protocols",),
    "_hops": ("hops",),
    "_sim": ("sim",),
    "_sweep": ("sweep",),
    "_reproduce": ("reproduce",),
    "_overlay": ("overlay",),
    "_check": ("check",),
    "_import": ("import",),
    "_schema": ("schema",),
    "_report": ("report",),
    "_fuzz": ("fuzz",),
    "_errata": ("errata",),
    "_swarm": ("swarm",),
    "_watch": ("watch",),
    "_tracegen": ("tracegen",),
    "_workload": ("workload",),
    "_cluster": ("node", "up", "down", "collect", "status", "logs"),
    "_load": ("load",),
    "_folders": ("init", "replace"),
    "_placement": ("placement",),
    "_client": ("send", "skip", "tail"),
    "_certs": ("certs",),
    "_tokens": ("token",),
    "_keys": ("keys",),
    "_config": ("config",),
    "_demo": ("demo",),
}


def make_app(command: str | None = None) -> typer.Typer:
    """The commands of the module that has this one, so that a node does not load what a checker needs; else all."""
    app = typer.Typer(
        name="amcast",
        help="Atomic multicast: order messages across groups of replicated processes, and check that they were.",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for module in [name for name, commands in COMMANDS.items() if command in commands] or COMMANDS:
        import_module(f".{module}", __package__).register(app)
    _reflow(app)
    return app


def _reflow(commands: typer.Typer) -> None:
    """Lines of a paragraph flow together, so that help wraps as wide as the terminal is, and not as the source."""
    for command in commands.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        command.help = "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _reflow(group.typer_instance)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"amcast {__version__}")
        raise typer.Exit


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
        code = make_app(*sys.argv[1:2])(standalone_mode=False)
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
        what = error.format_message().replace("\n", " ")
        _fail(what if "--help" in what else f"{what.rstrip('.')}; see --help", USAGE)
    else:
        if code == STOPPED:  # after Ctrl-C typer returns this exit code and prints nothing
            _fail("stopped", STOPPED)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    errors.print(line(("error:", "red"), " ", message), soft_wrap=True)
    sys.exit(code)
