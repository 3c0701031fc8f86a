"""Errata: published algorithms as published, the schedules that break them, and the mends.

One file a protocol, each with small subclasses of the mended protocol and a tuple of `Erratum`; the list below joins
them. The protocols themselves know nothing of it.
"""

from ..core import UsageError
from . import byzcast, fastcast, flexcast, geopaxos, optimistic
from ._document import make_document
from ._erratum import Directed, Erratum, Replay, Simulated, replay

__all__ = ["ERRATA", "Directed", "Erratum", "Replay", "Simulated", "erratum", "make_document", "replay"]

ERRATA: tuple[Erratum, ...] = (
    *fastcast.ERRATA,
    *flexcast.ERRATA,
    *optimistic.ERRATA,
    *byzcast.ERRATA,
    *geopaxos.ERRATA,
)


def erratum(name: str) -> Erratum:
    for each in ERRATA:
        if each.name == name:
            return each
    raise UsageError(f"there is no erratum '{name}': choose one of {', '.join(each.name for each in ERRATA)}")
