"""What signatures cost on this machine, to say what part of a message's cost they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from amcast.net.security.signing import ClientKey, Verifier

_TIMES = 201
_BYTES = 1_024  # of a small batch


def signature_us() -> tuple[float, float]:
    """To sign and to verify: the median of many."""
    key, said = ClientKey("bench"), bytes(_BYTES)
    id_ = key.new_id()
    [proof] = key.sign_all([(id_, said)])
    sign_us = _median_us(lambda: key.sign_all([(id_, said)]))
    return sign_us, _median_us(lambda: Verifier("bench", {}).verify(id_, said, proof))


def _median_us(work: Callable[[], object]) -> float:
    took = []
    for _ in range(_TIMES):
        began = time.perf_counter_ns()
        work()
        took.append(time.perf_counter_ns() - began)
    return median(took) / 1_000
