"""The token that commands show where nodes ask for one: given, in a file, in the environment, or the operator's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # the commands import it when they need it: other commands start faster
    from ..net.config import ClusterConfig
    from ..net.local import LocalCluster

TokenOption = Annotated[
    str, typer.Option(help="The client's token, where nodes ask for one; AMCAST_TOKEN in the environment does as well.")
]
ConfigOption = Annotated[Path | None, typer.Option(help="The cluster's configuration, if it is not in --dir.")]
TokenFileOption = Annotated[Path | None, typer.Option(help="A file that holds the client's token and nothing else.")]


def token_for(config: ClusterConfig, token: str, file: Path | None) -> str:
    """What is given comes first. What nobody gave on purpose is shown only to a cluster that can keep it secret."""
    from ..net.local import operator_token
    from ..net.security.access import read_token

    if file is not None:
        return read_token(file)
    if token or config.tls is None:
        return token
    return os.environ.get("AMCAST_TOKEN") or operator_token(config)


def local_cluster(folder: Path, token: str, file: Path | None, config: Path | None = None) -> LocalCluster:
    """The cluster in a folder, or of a configuration elsewhere, for whoever may show this token."""
    from ..net.config import load_config
    from ..net.local import LocalCluster

    cluster = LocalCluster(folder, None if config is None else load_config(config))
    cluster.token = token_for(cluster.config, token, file)
    return cluster
