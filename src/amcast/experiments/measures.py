"""What is measured of a run: figures by name, such as `per_s` or `client_p50_ms`.

Messages that were multicast in the first and in the last tenth of a run are left out, as the papers do: clients that
begin together, and the last ones, are no steady load.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..overlay.model import OverlayTree
from ..sim import Scenario
from ..trace import FINAL, NULL, OPTIMISTIC, Run
from ..trace.latency import latencies_us, percentile

Figures = dict[str, float]
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PERCENTILES = (50, 90, 95, 99)
_TRIM = 0.1
_FAST_US = 10_000  # no delay between regions fits into this
_END_US = 1 << 60
_FEW = 30  # a run with fewer messages is measured whole


def _described(name: str, took_us: Int64s) -> Figures:
    """`name_p50_ms`, ..., `name_mean_ms`, of latencies that there are."""
    there = took_us[took_us != NULL]
    if not len(there):
        return {}
    found = {f"{name}_p{q}_ms": percentile(there, q) / 1000 for q in _PERCENTILES}
    return {**found, f"{name}_mean_ms": round(float(there.mean()) / 1000, 4)}


def _steady(t_us: Int64s, first: float = _TRIM) -> Flags:
    """`first`: so much is left out at the begin; at the end it is a tenth."""
    if len(t_us) < _FEW:
        return np.ones(len(t_us), np.bool_)
    low, high = int(t_us.min()), int(t_us.max())
    length = high - low
    return (t_us >= low + length * first) & (t_us <= high - length * _TRIM)


def _while_all_send(run: Run) -> tuple[int, int]:
    """The time in which all clients of a closed loop are at it, without its first tenth. Those who wait longer send
    less in it, as in a run that ends after some time; over a whole run each client would count alike."""
    sent, senders = run.multicasts.t_us, run.multicasts.sender
    last: dict[int, int] = {}
    for sender, at in zip(senders.tolist(), sent.tolist(), strict=True):
        last[sender] = max(at, last.get(sender, 0))
    low, high = int(sent.min()), min(last.values())
    return low + round((high - low) * _TRIM), high


def _together(run: Run) -> Flags:
    low, high = _while_all_send(run)
    return (run.multicasts.t_us >= low) & (run.multicasts.t_us <= high)


def load(run: Run, scenario: Scenario) -> Figures:
    """Answers a second, and latencies; also of messages to so many groups, `client_to_2_p50_ms`."""
    return {**_latencies(run, _steady(run.multicasts.t_us)), **_rates(run)}


def load_together(run: Run, scenario: Scenario) -> Figures:
    """The same in the time in which all clients are at it: for clients that wait for very different times."""
    return _latencies(run, _together(run))


def cycles(run: Run, scenario: Scenario) -> Figures:
    """Throughput of clients that wait for very different times, as it would be in a run that ends after some time: each
    region's clients by how long one of their messages takes them on average."""
    topology = scenario.topology()
    sent = dict(zip(run.multicasts.msg.tolist(), run.multicasts.sender.tolist(), strict=True))
    spans: dict[int, list[int]] = {}  # client -> answers, time of the last one
    for message, at in zip(run.answers.msg.tolist(), run.answers.t_us.tolist(), strict=True):
        span = spans.setdefault(sent[message], [0, 0])
        span[0] += 1
        span[1] = max(span[1], at)
    regions: dict[str, list[list[int]]] = {}
    for client, span in spans.items():
        regions.setdefault(topology.region(client), []).append(span)
    rates = [len(each) * sum(s[0] for s in each) / (sum(s[1] for s in each) / 1e6) for each in regions.values()]
    return {"per_s": sum(rates)}


def _latencies(run: Run, steady: Flags) -> Figures:
    sizes = np.diff(run.multicasts.dst_start)
    latencies = latencies_us(run)
    figures: Figures = {"undelivered": float((latencies["last_replica"] == NULL).sum())}
    for at, took in latencies.items():
        figures.update(_described(at, took[steady]))
        for size in np.unique(sizes).tolist():
            figures.update(_described(f"{at}_to_{size}", took[steady & (sizes == size)]))
    return figures


def away(run: Run, scenario: Scenario) -> Figures:
    """Latencies of messages that do not go to the first group, which may be the one that orders: `away_to_1_p50_ms`."""
    multicasts = run.multicasts
    sizes = np.diff(multicasts.dst_start)
    rows = np.repeat(np.arange(len(multicasts)), sizes)
    is_away = np.ones(len(multicasts), np.bool_)
    is_away[rows[multicasts.dst == scenario.topology().groups[0]]] = False
    kept, took = is_away & _steady(multicasts.t_us), latencies_us(run)["client"]
    figures: Figures = {}
    for size in np.unique(sizes).tolist():
        figures.update(_described(f"away_to_{size}", took[kept & (sizes == size)]))
    return figures


def _rates(run: Run) -> Figures:
    answered = np.sort(run.answers.t_us)
    count = len(answered)
    if count < _FEW:
        return {}
    low, high = answered[count // 10], answered[count - 1 - count // 10]
    return {"per_s": round((count - 2 * (count // 10) - 1) / max(1e-6, (high - low) / 1e6), 3)}


def regions(run: Run, scenario: Scenario) -> Figures:
    """Latency at the client by its region, `at_CA_p50_ms`; and answers a second there."""
    topology, took = scenario.topology(), latencies_us(run)["client"]
    steady = _steady(run.multicasts.t_us)
    where = np.array([topology.region(int(sender)) for sender in run.multicasts.sender])
    figures: Figures = {}
    for region in scenario.network.regions:
        figures.update(_described(f"at_{region}", took[steady & (where == region)]))
    return figures


def replies(run: Run, scenario: Scenario) -> Figures:
    """When a client has the reply of its message's first, second, third destination: `reply_1_p90_ms`.

    Groups of one process: a reply takes the mean delay from the group's region to the client's.
    """
    topology, network = scenario.topology(), scenario.network
    place = {group: topology.region(topology.members(group)[0]) for group in topology.groups}
    sent = dict(zip(run.multicasts.msg.tolist(), range(len(run.multicasts)), strict=True))
    back: dict[int, list[int]] = {}
    final = run.deliveries.kind == FINAL
    clients = [topology.region(int(sender)) for sender in run.multicasts.sender]
    rows = (run.deliveries.msg[final].tolist(), run.deliveries.grp[final].tolist(), run.deliveries.t_us[final].tolist())
    for message, group, at in zip(*rows, strict=True):
        row = sent[message]
        back.setdefault(row, []).append(at + network.mean_us(place[group], clients[row]))
    steady = _together(run)
    took: dict[int, list[int]] = {}
    for row, times in back.items():
        if steady[row] and len(times) > 1:
            for nth, at in enumerate(sorted(times), 1):
                took.setdefault(nth, []).append(at - int(run.multicasts.t_us[row]))
    figures: Figures = {}
    for nth, each in sorted(took.items()):
        figures.update(_described(f"reply_{nth}", np.array(each, np.int64)))
    return figures


def optimistic_late(run: Run, scenario: Scenario) -> Figures:
    """The same in the second half of a run: for processes that learn delays first."""
    return optimistic(run, scenario, 0.5)


def optimistic(run: Run, scenario: Scenario, first: float = _TRIM) -> Figures:
    """Optimistic deliveries: how often they were right, when they came, and how much earlier than the final ones.

    `right_k1` is the share of final deliveries that stand at the same position among the optimistic ones; of pairs,
    `right_k2`. `mistakes` is the share of messages that were guessed before one that came before them in the end.
    Figures of the groups of a region end with its name, as `right_k1_far`.
    """
    topology = scenario.topology()
    members: dict[str, list[int]] = {"": list(topology.processes)}
    for process in topology.processes:
        members.setdefault(f"_{topology.region(process)}", []).append(process)
    sequences = {process: _Sequence(run, process, first) for process in topology.processes}
    figures: Figures = {}
    for name, processes in members.items():
        figures.update(_optimistic_of([sequences[process] for process in processes], name))
    for process in topology.processes:
        figures.update(_optimistic_of([sequences[process]], f"_{topology.name(process)}"))
    return figures


class _Sequence:
    """What one process delivered: for each final delivery, when, and when and where it was guessed."""

    def __init__(self, run: Run, process: int, first: float) -> None:
        rows = run.deliveries
        final, guess = (np.flatnonzero((rows.process == process) & (rows.kind == kind)) for kind in (FINAL, OPTIMISTIC))
        final = final[np.argsort(rows.pos[final], kind="stable")]
        self.msg, self.t_us = rows.msg[final], rows.t_us[final]
        # What came for good before its guess was due is a guess of that moment.
        late = final[~np.isin(self.msg, rows.msg[guess])] if len(guess) else final[:0]
        both = np.concatenate((guess, late))
        both = both[np.lexsort((rows.pos[both], rows.kind[both] == FINAL, rows.t_us[both]))]
        place = {msg: pos for pos, msg in enumerate(rows.msg[both].tolist())}
        when = dict(zip(rows.msg[both].tolist(), rows.t_us[both].tolist(), strict=True))
        self.guessed_pos = np.array([place.get(msg, -1) for msg in self.msg.tolist()], np.int64)
        self.guessed_us = np.array([when.get(msg, -1) for msg in self.msg.tolist()], np.int64)
        sent = dict(zip(run.multicasts.msg.tolist(), run.multicasts.t_us.tolist(), strict=True))
        senders = dict(zip(run.multicasts.msg.tolist(), run.multicasts.sender.tolist(), strict=True))
        self.sent_us = np.array([sent[msg] for msg in self.msg.tolist()], np.int64)
        self.own = np.array([senders[msg] == process for msg in self.msg.tolist()], np.bool_)
        self.steady = _steady(self.sent_us, first)

    def right(self, k: int) -> list[bool]:
        """Of each batch of k positions: whether the same messages were guessed for these positions."""
        count = len(self.msg) // k * k
        same = np.arange(count) // k == self.guessed_pos[:count] // k
        steady = self.steady[:count].reshape(-1, k).all(axis=1)
        return [bool(each) for each in same.reshape(-1, k).all(axis=1)[steady]]

    def mistakes(self) -> list[bool]:
        highest = np.maximum.accumulate(np.concatenate(([-1], self.guessed_pos)))[:-1]
        wrong = (self.guessed_pos < highest) | (self.guessed_pos < 0)
        return [bool(each) for each in wrong[self.steady]]


def _optimistic_of(sequences: list[_Sequence], name: str) -> Figures:
    figures: Figures = {}
    for k in (1, 2):
        right = [each for sequence in sequences for each in sequence.right(k)]
        if right:
            figures[f"right_k{k}{name}"] = sum(right) / len(right)
    wrong = [each for sequence in sequences for each in sequence.mistakes()]
    if not wrong:
        return figures
    figures[f"mistakes{name}"] = sum(wrong) / len(wrong)
    guessed = [sequence.steady & (sequence.guessed_us >= 0) for sequence in sequences]
    both = list(zip(sequences, guessed, strict=True))
    for what, took in (
        ("opt", [each.guessed_us[there] - each.sent_us[there] for each, there in both]),
        ("final", [each.t_us[each.steady] - each.sent_us[each.steady] for each in sequences]),
        ("final_own", [(each.t_us - each.sent_us)[each.steady & each.own] for each in sequences]),
        ("window", [(each.t_us - each.guessed_us)[there] for each, there in both]),
        ("window_own", [(each.t_us - each.guessed_us)[there & each.own] for each, there in both]),
    ):
        figures.update(_described(f"{what}{name}", np.concatenate(took)))
    return figures


def wire(run: Run, scenario: Scenario) -> Figures:
    """Bytes that all processes receive for a message."""
    is_member = np.isin(run.wire.dst, np.array(scenario.topology().processes))
    return {"received_bytes": int(run.wire.bytes[is_member].sum()) / max(1, len(run.multicasts))}


def operations(run: Run, scenario: Scenario) -> Figures:
    """Operations at clients: the share that takes no way between regions, `fast`; by region, before and after
    faults."""
    called = run.operations.invoked_us
    took = run.operations.returned_us - called
    there = run.operations.returned_us != NULL
    low_us, high_us = _while_all_send(run)
    figures: Figures = {"fast": float((took[there & (called >= low_us) & (called <= high_us)] < _FAST_US).mean())}
    topology = scenario.topology()
    where = np.array([topology.region(int(client)) for client in run.operations.client])
    for stretch, (low, high) in enumerate(pairwise((0, *[fault.at_us for fault in scenario.plan.faults], _END_US))):
        # Those who wait for a process that is gone ask another one within three timeouts.
        after = (called >= low + (3 * scenario.retry_us if stretch else 0)) & (called < high) & there
        seconds = max(1e-6, (min(high, int(called.max())) - low) / 1e6)
        for region in dict.fromkeys(where.tolist()):
            mine = after & (where == region)
            figures.update(_described(f"stretch_{stretch}_{region}", took[mine]))
            figures[f"stretch_{stretch}_{region}_per_s"] = float(mine.sum()) / seconds
    return figures


def overhead(run: Run, scenario: Scenario) -> Figures:
    """Of a tree: the share of payloads that groups receive and do not deliver, in percent: mean and maximum of groups.

    A group receives each message that involves it, once.
    """
    topology = scenario.topology()
    tree = OverlayTree.of_parents(topology.groups, scenario.options["parents"])
    received = dict.fromkeys(topology.groups, 0)
    delivered = dict.fromkeys(topology.groups, 0)
    starts, dst = run.multicasts.dst_start.tolist(), run.multicasts.dst.tolist()
    for row in np.flatnonzero(_together(run)).tolist():
        mine = tuple(dst[starts[row] : starts[row + 1]])
        for group in tree.involved(mine):
            received[group] += 1
        for group in mine:
            delivered[group] += 1
    shares = {group: 100 * (1 - delivered[group] / received[group]) for group in topology.groups if received[group]}
    figures: Figures = {f"overhead_g{group}": share for group, share in shares.items()}
    return figures | {"overhead_mean": sum(shares.values()) / len(shares), "overhead_max": max(shares.values())}


MEASURES: dict[str, Callable[[Run, Scenario], Figures]] = {
    "load": load,
    "load_together": load_together,
    "cycles": cycles,
    "away": away,
    "regions": regions,
    "replies": replies,
    "optimistic": optimistic,
    "optimistic_late": optimistic_late,
    "wire": wire,
    "operations": operations,
    "overhead": overhead,
}
