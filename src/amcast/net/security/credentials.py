"""The files of a process or a client in a folder of certificates (`certs.py`), made ready for use."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable
from pathlib import Path

from ..config import ClusterConfig
from ._files import CA, SECRET_FILE, cert_and_key
from .access import Tickets
from .tls import certificate_identity, client_context, server_context


class ProcessCredentials:
    """With which a process accepts connections, dials others, and signs and checks tickets."""

    def __init__(self, server: ssl.SSLContext | None, client: ssl.SSLContext | None, tickets: Tickets) -> None:
        self.server = server
        self.client = client
        self.tickets = tickets

    @classmethod
    def load(cls, config: ClusterConfig, name: str, on_refused: Callable[[str], None]) -> ProcessCredentials:
        """Without TLS anybody can connect, and forge tickets: these only keep honest clients apart."""
        if config.tls is None:
            return cls(None, None, Tickets(hashlib.sha256(f"amcast {config.cluster}".encode()).digest()))
        folder = config.path(config.tls.folder)
        ca, (cert, key) = cert_and_key(folder, CA)[0], cert_and_key(folder, name)
        server = server_context(ca, cert, key, on_refused=on_refused)
        return cls(server, client_context(ca, cert, key), Tickets.load(folder / SECRET_FILE))


def client_credentials(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    """The context of a client, and the name in its certificate."""
    ca, (cert, key) = cert_and_key(folder, CA)[0], cert_and_key(folder, name)
    return client_context(ca, cert, key), certificate_identity(cert).name
