"""`amcast token add`, `list` and `revoke`: what each client may do."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from ..core import UsageError
from ._cluster import file_of_cluster
from ._output import JsonOption, console, errors, print_json, table

_NAME = "tokens.toml"
FileOption = Annotated[
    Path | None, typer.Option(help=f"The file that nodes read; if not given, that of `amcast up`, or {_NAME}.")
]


def register(app: typer.Typer) -> None:
    tokens = typer.Typer(
        help="Tokens of clients, with the groups that each may send to and follow.\n\n"
        "Examples:\n\n[bold]amcast token add alice --send g1,g2 --file tokens.toml[/bold]",
        no_args_is_help=True,
    )
    app.add_typer(tokens, name="token")

    @tokens.command("add")
    def add(
        name: Annotated[str, typer.Argument(help="Whose token it is.")],
        send: Annotated[str, typer.Option(help="Groups it may send to: g1,g2 or '*' for all; none if not given.")] = "",
        follow: Annotated[str, typer.Option(help="Groups whose deliveries it may read, likewise.")] = "",
        operate: Annotated[bool, typer.Option(help="May have groups skip messages (amcast skip).")] = False,
        expires: Annotated[
            str | None, typer.Option(help="From this day on (UTC) it is refused, as 2027-01-31.", metavar="DAY")
        ] = None,
        out: Annotated[
            Path | None, typer.Option(help="Write the token to this new file, for --token-file, and do not show it.")
        ] = None,
        file: FileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make a token for a client, and add its hash and its rights to a file that nodes read; it is made if need be.

        The token is shown once, alone on stdout: the file holds its SHA-256 only. Nodes read the file again when it
        changes.

        Examples:

        [bold]amcast token add alice --send g1,g2 --follow '*' --file tokens.toml[/bold]

        [bold]amcast token add reader --follow g1 --expires 2027-01-31 --out reader.token[/bold]
        """
        from ..net.security.access import add_token, write_secret

        if out is not None and out.exists():
            raise UsageError(f"{out} exists: nothing is overwritten, choose another file")
        file = file_of_cluster(_NAME, file)
        secret = add_token(file, name, _groups(send), _groups(follow), _day(expires), operate)
        if out is not None:
            write_secret(out, secret)
        if as_json:
            shown = {"token": secret} if out is None else {"out": str(out)}
            print_json({"name": name, **shown, "file": str(file)})
            return
        if out is None:
            console.print(secret, soft_wrap=True, highlight=False, markup=False)
        where = "the token is not shown again" if out is None else f"the token is in {out}"
        errors.print(f"added to {file}; {where}", soft_wrap=True, highlight=False, markup=False)

    @tokens.command("list")
    def list_(file: FileOption = None, as_json: JsonOption = False) -> None:
        """Show whose tokens there are, and what each may do. The tokens themselves are stored nowhere.

        Examples:

        [bold]amcast token list --file tokens.toml[/bold]
        """
        from ..net.security.access import Access

        file, entries = file_of_cluster(_NAME, file), []
        for rights in Access.load(file).all:
            send, follow = rights.groups
            expires = "" if rights.expires is None else rights.expires.isoformat()
            operate = "yes" if rights.may_operate else ""
            entries.append(
                {"name": rights.name, "send": send, "follow": follow, "operate": operate, "expires": expires}
            )
        if as_json:
            print_json({"file": str(file), "tokens": entries})
            return
        shown = table("name", "send", "follow", "operate", "expires")
        for entry in entries:
            shown.add_row(*entry.values())
        console.print(shown, highlight=False, markup=False)

    @tokens.command("revoke")
    def revoke(
        name: Annotated[str, typer.Argument(help="Whose token it is.")],
        file: FileOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Take a token out of the file that nodes read. They end its connections within a second.

        Examples:

        [bold]amcast token revoke alice --file tokens.toml[/bold]
        """
        from ..net.security.access import revoke_token

        file = file_of_cluster(_NAME, file)
        revoke_token(file, name)
        if as_json:
            print_json({"name": name, "revoked": True, "file": str(file)})
            return
        errors.print(f"{name} is revoked in {file}", soft_wrap=True, highlight=False, markup=False)


def _groups(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _day(text: str | None) -> date | None:
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"'{text}' is no day: write for example 2027-01-31") from None
