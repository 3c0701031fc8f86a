"""All by which a process knows who connects and what they may do: certificates, tokens and tickets, as files.

Files may be replaced while the process runs. Each kind is read again by itself: a broken file of tokens does not keep
a revoked certificate alive. A broken file is refused, and what was there before stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ...core import UsageError
from ..config import ClusterConfig
from ..system import Stamp, system
from ._files import SECRET_FILE
from .access import Access, Tickets
from .keyring import Keyring
from .seal import Seal
from .signing import SignedTickets, Signer, Verifier, load_signer, verifier_of


class ProcessCredentials:
    def __init__(self, config: ClusterConfig, name: str, on_refused: Callable[[str], None]) -> None:
        """Without TLS anybody can connect, and forge tickets: these only keep honest clients apart, and do not end."""
        self._tokens = None if config.tokens is None else config.path(config.tokens)
        self.access = Access.unrestricted() if self._tokens is None else Access.load(self._tokens)
        self.tls: Keyring | None = None
        self.tickets: Tickets | SignedTickets = Tickets(
            hashlib.sha256(f"amcast {config.cluster}".encode()).digest(), life_s=0
        )
        self.signer: Signer | None = None  # where others may lie
        self.verifier: Verifier | None = None
        self.seal: Seal | None = None  # where others may lie, and there is no TLS
        if config.tls is not None:
            folder = config.path(config.tls.folder)
            self.tls = Keyring(folder, name, on_refused)
            self.tickets = Tickets.load(folder / SECRET_FILE)
            if self.tls.identity.cluster != config.cluster:
                mine = f"of cluster '{self.tls.identity.cluster}', and this is '{config.cluster}'"
                raise UsageError(f"{folder}: the certificate of {name} is {mine}: issue it anew")
        if config.survives_liars:
            self.signer, self.verifier = load_signer(config, name), verifier_of(config)
            self.tickets = SignedTickets(config.id, name)
            self.seal = None if self.tls is not None else Seal.of_process(config, name, self.signer)

    @property
    def knows_processes(self) -> bool:
        """Whether a process proves who it is. Otherwise its word is taken for it."""
        return self.tls is not None or self.seal is not None

    @property
    def may_change(self) -> bool:
        return self.tls is not None or self._tokens is not None

    def stamps(self) -> list[Stamp | None]:
        """Differ when a file has changed."""
        return [
            *([] if self.tls is None else self.tls.stamps()),
            *([] if self._tokens is None else [system().stamp(self._tokens)]),
        ]

    def reload(self) -> list[str]:
        """Reads all files again. Returns what is wrong with those that were refused."""
        problems: list[str] = []
        if self.tls is not None:
            try:
                self.tls.reload()
            except UsageError as error:
                problems.append(str(error))
        if self._tokens is not None:
            try:
                self.access = Access.load(self._tokens)
            except UsageError as error:
                problems.append(str(error))
        return problems
