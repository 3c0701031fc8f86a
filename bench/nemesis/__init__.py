"""Injects faults into a real cluster under load, and checks that it keeps its promises.

    python -m bench.nemesis --protocol fastcast --rounds 20

Each round strikes one process, a group or all of them, for some seconds: kill -9, SIGSTOP, SIGTERM, cut links, clocks
that jump, disks that are slow, full, lost or put back from an older copy. Clients multicast all the time, and every
node runs an application. In the end (`_judge.py`)

- the checker must accept the trace of the run;
- a client that follows each group from position 0 must get every message that was acknowledged, once, as it was sent;
- the applications of a group's replicas must have gone through the same states, those that this client can compute;
- no node may have ended by itself.
"""

from ._judge import Result
from ._torment import torment

__all__ = ["Result", "torment"]
