"""`amcast keys`: with what processes sign, in clusters whose members may lie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..core import UsageError
from ._cluster import file_of_cluster
from ._output import JsonOption, console, print_json

_NAME = "cluster.toml"


def register(app: typer.Typer) -> None:
    @app.command("keys")
    def keys(
        names: Annotated[
            list[str] | None, typer.Argument(help="Processes that run on this machine, as g1.p0; all if none is given.")
        ] = None,
        config: Annotated[
            Path | None,
            typer.Option(help=f"The cluster's configuration; if not given, that of `amcast up`, or {_NAME}."),
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Make the signing keys of processes, where the protocol survives liars, and print what cluster.toml needs.

        The private key of a process is a file on its own machine, which no other machine needs; the public one is a
        line in its [[process]] entry, the same in everybody's cluster.toml. A key that is there already is kept, and
        printed again. `amcast up` makes keys by itself.

        Examples:

        [bold]amcast keys g1.p0[/bold]

        [bold]amcast keys --config /etc/amcast/cluster.toml --json[/bold]
        """
        from ..net.config import convert_config, read_toml
        from ..net.security.signing import key_file, make_key

        file = file_of_cluster(_NAME, config)
        try:
            cluster = convert_config(read_toml(file), file)
        except msgspec.ValidationError as error:
            raise UsageError(f"{file}: {error}") from error
        if not cluster.survives_liars:
            raise UsageError(f"{cluster.protocol} survives no liars, so its processes sign nothing and need no keys")
        chosen = [cluster.process_named(name).id for name in names or [entry.id for entry in cluster.process]]
        made = {name: make_key(cluster, name) for name in chosen}
        if as_json:
            print_json({"keys": made, "files": {name: str(key_file(cluster, name)) for name in made}})
            return
        for name, public in made.items():
            console.print(f'{name}: key = "{public}"', highlight=False, soft_wrap=True)
