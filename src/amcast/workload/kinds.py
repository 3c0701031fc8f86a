"""All kinds of workloads, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..core import UsageError
from .gtpcc import Gtpcc
from .micro import Micro
from .social import Social

AnyWorkload = Micro | Gtpcc | Social

KINDS: dict[str, type[AnyWorkload]] = {"micro": Micro, "gtpcc": Gtpcc, "social": Social}


def workload_of(kind: str, options: Mapping[str, Any]) -> AnyWorkload:
    """From the options of the command line; `UsageError` says what is wrong with them."""
    if kind not in KINDS:
        raise UsageError(f"there is no workload '{kind}': choose one of {', '.join(KINDS)}, or replay:FILE")
    made = KINDS[kind]
    try:
        return msgspec.convert(dict(options), made)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"not an option of the workload {kind}: {error}; it has {', '.join(made.__struct_fields__)}"
        ) from error
