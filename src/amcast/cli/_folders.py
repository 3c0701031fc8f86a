"""`amcast init` and `replace`: data folders of processes, for their first start and after the loss of a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._cluster import DEFAULT_DIR, DirOption
from ._output import JsonOption, console, print_json

ConfigOption = Annotated[Path, typer.Option(help="The cluster's configuration.")]


def register(app: typer.Typer) -> None:
    @app.command("init")
    def init(
        config: ConfigOption,
        id_: Annotated[str | None, typer.Option("--id", help="One process, as g1.p0; all if not given.")] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Format the data folders of a new cluster, each once: `amcast node` then starts their processes.

        `amcast up` does it by itself. For a process that was in the cluster before, use `amcast replace`.

        Examples:

        [bold]amcast init --config cluster.toml --id g1.p0[/bold]
        """
        from ..net.config import load_config
        from ..net.node.data_folder import format_folder

        cluster = load_config(config)
        names = [entry.id for entry in cluster.process] if id_ is None else [id_]
        for name in names:
            format_folder(cluster, name)
            if not as_json:
                console.print(f"{name}: {cluster.data_folder(name)} is formatted", highlight=False, soft_wrap=True)
        if as_json:
            print_json({"formatted": {name: str(cluster.data_folder(name)) for name in names}})

    @app.command("replace")
    def replace(
        name: Annotated[str, typer.Argument(help="A process that is down, as g1.p0.")],
        config: Annotated[Path | None, typer.Option(help="The configuration of a cluster on many machines.")] = None,
        folder: DirOption = DEFAULT_DIR,
        as_json: JsonOption = False,
    ) -> None:
        """Give a process an empty data folder, after a lost disk or a damaged log: its group takes it back.

        Nothing is deleted: what is left of the old folder is moved aside. The process then needs a majority of its
        group, which hands it its state. Never more members than the others can do without may lose their disks.

        Examples:

        [bold]amcast replace g1.p0 && amcast up[/bold]

        [bold]amcast replace g1.p0 --config cluster.toml[/bold]
        """
        from ..net.config import load_config
        from ..net.local import CONFIG
        from ..net.node.data_folder import replace_folder

        cluster = load_config(folder / CONFIG if config is None else config)
        aside = replace_folder(cluster, name)
        if as_json:
            print_json({"id": name, "aside": None if aside is None else str(aside)})
            return
        if aside is not None:
            console.print(f"what {name} had is in {aside}", highlight=False, soft_wrap=True)
        start = "amcast up" if config is None else f"amcast node --config {config} --id {name}"
        console.print(
            f"{name} has an empty folder: start it (`{start}`), and it is silent until its group has taken it back",
            highlight=False,
            soft_wrap=True,
        )
