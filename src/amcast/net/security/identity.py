"""Who is at the other end of a connection: a process or a client, as its certificate says, never as a message says.

A certificate carries the identity as a URI among its alternative names, `amcast://shop/process/g1.p0` or
`amcast://shop/client/alice`. It names the cluster, so that two clusters whose certificates come from one CA are still
two: whoever belongs to one is a stranger at the other. A name needs no escapes as a file name, in a log line or a URI.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from ...core import UsageError

Kind = Literal["process", "client"]

NAME_RULE = "1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"

_SCHEME = "amcast://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PROCESS = re.compile(r"g[1-9][0-9]{0,4}\.p(0|[1-9][0-9]{0,7})")
_RESERVED = frozenset({"ca", "cluster"})  # `ca.crt` and `cluster.secret` are in the same folder


class Identity(msgspec.Struct, frozen=True):
    kind: Kind
    name: str
    cluster: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def uri(self) -> str:
        return f"{_SCHEME}{self.cluster}/{self.kind}/{self.name}"


def is_plain_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def identity(kind: Kind, name: str, cluster: str) -> Identity:
    """Checks the names: a client can't have the name of a process."""
    if not is_plain_name(cluster):
        raise UsageError(f"{cluster!r} is no name of a cluster that certificates can carry: use {NAME_RULE}")
    if kind == "process":
        if _PROCESS.fullmatch(name) is None:
            raise UsageError(f"{name!r} is no name of a process: write g1.p0 for the first process of group g1")
    elif not is_plain_name(name):
        raise UsageError(f"{name!r} is no name for a client: use {NAME_RULE}")
    elif name in _RESERVED or _PROCESS.fullmatch(name):
        raise UsageError(f"a client can't be called {name}: that name is taken, choose another")
    return Identity(kind, name, cluster)


def parse_uri(uri: str) -> Identity | None:
    """None if the URI names no process and no client of a cluster."""
    cluster, _, rest = uri.removeprefix(_SCHEME).partition("/")
    kind, slash, name = rest.partition("/")
    if not uri.startswith(_SCHEME) or not slash:
        return None
    try:
        if kind == "process":
            return identity("process", name, cluster)
        return identity("client", name, cluster) if kind == "client" else None
    except UsageError:
        return None
