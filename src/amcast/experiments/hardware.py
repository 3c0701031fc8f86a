"""The machines of the papers, as costs of a message.

A simulated machine takes time for each message that it receives or sends, and so saturates (`sim/machine.py`). The
costs here are fitted to one published figure each; all others follow from the protocols. A group does 36,000 local
messages a second with FastCast or BaseCast, and Multi-Paxos at most 48,000 (FastCast, Figure 3): their programs do less
for each message there, so it has a cost of its own. `HOP_US` is what a message takes on its way besides the network and
the CPU: wake-ups and queues of the operating system, which delay a message and cost no throughput. It is fitted to
BaseCast's 0.928 ms to two groups (FastCast, Figure 4): seven messages in a row.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..core import Latency, latency_preset
from ..sim import CpuCost

_LIBPAXOS_NS = {"basecast": 13_200, "fastcast": 13_200, "multipaxos": 10_900}
HOP_US = 60


def libpaxos(protocol: str) -> CpuCost:
    """The servers of FastCast's evaluation: Xeons of 2.5 GHz, one core for a process."""
    cost = _LIBPAXOS_NS[protocol]
    return CpuCost(cost, cost)


def libpaxos_lan() -> Latency:
    lan = latency_preset("lan")
    return replace(lan, default_us=lan.default_us + HOP_US)


_BFT_SMART_NS = 21_400
_BFT_SMART_HOP_US = 640


def bft_smart() -> CpuCost:
    """The servers of ByzCast's evaluation with BFT-SMaRt: a group of four does 19,500 messages a second (thesis,
    Figure 3.4)."""
    return CpuCost(_BFT_SMART_NS, _BFT_SMART_NS)


def bft_smart_lan() -> Latency:
    """One client of one group waits 4 ms there (thesis, Figure 3.6), most of it in Java's queues and threads."""
    lan = latency_preset("lan")
    return replace(lan, default_us=lan.default_us + _BFT_SMART_HOP_US)
