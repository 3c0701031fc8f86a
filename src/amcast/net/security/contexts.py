"""What a node or a client shows and expects: TLS contexts, and the secret that signs tickets."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

from ..config import ClusterConfig
from ._files import read_file
from .tls import certificate_identity, client_context, server_context

SECRET_FILE = "cluster.secret"


class Security:
    def __init__(self, server: ssl.SSLContext | None, client: ssl.SSLContext | None, secret: bytes) -> None:
        self.server = server
        self.client = client
        self.secret = secret

    @classmethod
    def of_process(cls, config: ClusterConfig, name: str, on_refused: Callable[[str], None]) -> Security:
        """Without TLS anybody can connect, and a ticket only tells clients apart that mean no harm."""
        if config.tls is None:
            return cls(None, None, hashlib.sha256(f"amcast {config.cluster}".encode()).digest())
        folder = config.path(config.tls.folder)
        ca, cert, key = folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key"
        secret = read_file(folder / SECRET_FILE, "the cluster's secret", "make it with `amcast certs`")
        return cls(server_context(ca, cert, key, on_refused=on_refused), client_context(ca, cert, key), secret)


def client_security(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    """The context of a client, and the name in its certificate."""
    cert = folder / f"{name}.crt"
    return client_context(folder / "ca.crt", cert, folder / f"{name}.key"), certificate_identity(cert).name
