"""`amcast certs`: certificates for processes and clients, the CA that issues them, and which are revoked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core import UsageError, grid
from ._output import JsonOption, console, print_json, table

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.security.certs import Made
    from ..net.security.identity import Identity

_WHAT = "nothing is named: use --groups 2, --process g1.p0 or --client alice"


def register(app: typer.Typer) -> None:
    @app.command("certs")
    def certs(
        folder: Annotated[Path, typer.Argument(help="The folder of the CA; created if need be.", metavar="DIR")],
        cluster: Annotated[str, typer.Option(help="The cluster's name, as in cluster.toml.")] = "",
        process: Annotated[list[str] | None, typer.Option(help="A process, as g1.p0; may be repeated.")] = None,
        client: Annotated[list[str] | None, typer.Option(help="A client's name; may be repeated.")] = None,
        groups: Annotated[int | None, typer.Option(help="All processes of this many groups.", min=1)] = None,
        replicas: Annotated[int | None, typer.Option(help="Processes per group; 3 if not given.", min=1)] = None,
        force: Annotated[
            bool, typer.Option("--force", help="Replace certificates; the CA and the secret stay.")
        ] = False,
        new_ca: Annotated[
            bool, typer.Option("--new-ca", help="Make a new CA, which issues from now on; the old one stays trusted.")
        ] = False,
        drop_old_ca: Annotated[
            bool, typer.Option("--drop-old-ca", help="Trust the newest CA alone, once it has issued all certificates.")
        ] = False,
        revoke: Annotated[
            list[str] | None, typer.Option(help="Revoke the certificate of this process or client; may be repeated.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make certificates for mutual TLS: for the named processes and clients, and a development CA if there is none.

        All or nothing is written, and nothing is overwritten without --force. Each node needs ca.crt, its own two files
        and cluster.secret; each client needs ca.crt and its own two files. Both look at ca.crl, if there is one.
        Neither needs ca.key. Running nodes read files that change.

        Examples:

        [bold]amcast certs certs --cluster shop --groups 2 --replicas 3 --client alice[/bold]

        [bold]amcast certs certs --cluster shop --process g1.p0 --force[/bold]

        [bold]amcast certs certs --revoke alice[/bold]

        [bold]amcast certs certs --new-ca[/bold]   then issue all with --force, then --drop-old-ca
        """
        from ..net.security import certs as authority

        named = bool(process or client or groups or replicas)
        tasks = (named, new_ca, drop_old_ca, bool(revoke))
        if sum(tasks) != 1:
            raise UsageError(
                _WHAT if not any(tasks) else "one thing at a time: issue, --new-ca, --drop-old-ca, --revoke"
            )
        made: list[Made] = []
        if new_ca:
            made = [authority.add_authority(folder)]
        elif drop_old_ca:
            authority.drop_authorities(folder)
        elif revoke:
            authority.revoke(folder, revoke)
        else:
            made = authority.set_up(folder, _wanted(cluster, process, client, groups, replicas), force=force)
        if as_json:
            print_json({"folder": str(folder), "made": [_document(each) for each in made]})
        elif made:
            _show(made)


def _wanted(
    cluster: str, processes: list[str] | None, clients: list[str] | None, groups: int | None, replicas: int | None
) -> list[Identity]:
    from ..net.security.identity import identity

    if groups is None and replicas is not None:
        raise UsageError("--replicas goes with --groups: how many groups are there?")
    if not cluster:
        raise UsageError("certificates name their cluster: use --cluster, with the name in cluster.toml")
    everyone: list[str] = []
    if groups is not None:
        topology = grid(groups, 3 if replicas is None else replicas)
        everyone = [topology.name(process) for process in topology.processes]
    # A name that is given twice gets one certificate.
    wanted = [identity("process", name, cluster) for name in dict.fromkeys([*everyone, *(processes or [])])]
    return wanted + [identity("client", name, cluster) for name in dict.fromkeys(clients or [])]


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
