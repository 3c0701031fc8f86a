"""`amcast certs` and `amcast token`: certificates for processes and clients, and what each client may do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import UsageError, grid
from ._output import JsonOption, console, errors, print_json, table

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.security.certs import Made
    from ..net.security.identity import Identity


def register(app: typer.Typer) -> None:
    @app.command("certs")
    def certs(
        folder: Annotated[Path, typer.Argument(help="The folder of the CA; created if need be.", metavar="DIR")],
        process: Annotated[list[str] | None, typer.Option(help="A process, as g1.p0; may be repeated.")] = None,
        client: Annotated[list[str] | None, typer.Option(help="A client's name; may be repeated.")] = None,
        groups: Annotated[int | None, typer.Option(help="All processes of this many groups.", min=1)] = None,
        replicas: Annotated[int | None, typer.Option(help="Processes per group; 3 if not given.", min=1)] = None,
        force: Annotated[
            bool, typer.Option("--force", help="Replace certificates; the CA and the secret stay.")
        ] = False,
        as_json: JsonOption = False,
    ) -> None:
        """Make certificates for mutual TLS: for the named processes and clients, and a development CA if there is none.

        All or nothing is written, and nothing is overwritten without --force. Each node needs ca.crt, its own two files
        and cluster.secret; each client needs ca.crt and its own two files. Neither needs ca.key.

        Examples:

        [bold]amcast certs certs --groups 2 --replicas 3 --client alice[/bold]

        [bold]amcast certs certs --process g1.p0 --force[/bold]
        """
        from ..net.security.certs import set_up

        wanted = _wanted(process or [], client or [], groups, replicas)
        made = set_up(folder, wanted, force=force)
        if as_json:
            print_json({"folder": str(folder), "made": [_document(each) for each in made]})
        else:
            _show(made)

    @app.command("token")
    def token(
        name: Annotated[str, typer.Argument(help="Whose token it is.")],
        send: Annotated[str, typer.Option(help="Groups it may send to: g1,g2 or '*' for all; none if not given.")] = "",
        follow: Annotated[str, typer.Option(help="Groups whose deliveries it may read, likewise.")] = "",
        file: Annotated[Path, typer.Option(help="The file that nodes read; created if need be.")] = Path("tokens.toml"),
        as_json: JsonOption = False,
    ) -> None:
        """Make a token for a client, and add its hash and its rights to a file that nodes read.

        The token is shown once, alone on stdout: the file holds its SHA-256 only. To let the token expire, add a line
        such as expires = 2027-01-31 to its entry.

        Examples:

        [bold]amcast token alice --send g1,g2 --follow '*' --file tokens.toml[/bold]

        [bold]amcast token reader --follow g1 --json[/bold]
        """
        from ..net.security.access import add_token

        secret = add_token(file, name, _groups(send), _groups(follow))
        if as_json:
            print_json({"name": name, "token": secret, "file": str(file)})
            return
        console.print(secret, soft_wrap=True, highlight=False)
        errors.print(f"added to {file}; the token is not shown again", soft_wrap=True, highlight=False)


def _wanted(processes: list[str], clients: list[str], groups: int | None, replicas: int | None) -> list[Identity]:
    from ..net.security.identity import identity

    if groups is None and replicas is not None:
        raise UsageError("--replicas goes with --groups: how many groups are there?")
    everyone: list[str] = []
    if groups is not None:
        topology = grid(groups, 3 if replicas is None else replicas)
        everyone = [topology.name(process) for process in topology.processes]
    # A name that is given twice gets one certificate.
    wanted = [identity("process", name) for name in dict.fromkeys([*everyone, *processes])]
    wanted += [identity("client", name) for name in dict.fromkeys(clients)]
    if not wanted:
        raise UsageError("nothing is named: use --groups 2, --process g1.p0 or --client alice")
    return wanted


def _groups(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _document(made: Made) -> dict[str, Any]:
    return {
        "what": made.what,
        "name": made.name,
        "cert": None if made.cert is None else str(made.cert),
        "key": str(made.key),
        "valid_until": None if made.valid_until is None else made.valid_until.isoformat(),
    }


def _show(made: list[Made]) -> None:
    shown = table("what", "name", "certificate", "key (mode 0600)", "valid until")
    for each in made:
        until = "" if each.valid_until is None else f"{each.valid_until:%Y-%m-%d}"
        shown.add_row(each.what, each.name, "" if each.cert is None else str(each.cert), str(each.key), until)
    console.print(shown, highlight=False)
