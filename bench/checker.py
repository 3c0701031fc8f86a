"""The in-memory checker on a run that breaks nothing: every check goes through all of it."""

from __future__ import annotations

import numpy as np

from amcast.check import check_run
from amcast.core.ids import GROUP_ID_LIMIT, SEQ_BITS
from amcast.trace import FINAL, Deliveries, GroupInfo, Multicasts, Run, RunInfo, WireRows, make_run

from ._figures import Figure, Progress, Sizes, cpu_seconds

_GROUPS = 16
_REPLICAS = 3
_CLIENTS = 64
_DST_MAX = 3
_SEED = 1
_TARGET_S = 3.0

_ALL = ("integrity", "validity", "agreement", "prefix", "acyclic", "timestamps", "fifo", "genuine")


def good_run(deliveries: int) -> Run:
    """Messages to 1-3 of the groups in one total order, of which every process delivers its part, wire included."""
    rng = np.random.default_rng(_SEED)
    mean_dst = (1 + _DST_MAX) / 2
    messages = int(1.01 * deliveries / (_REPLICAS * mean_dst))  # a little more, so that chance takes none away
    sizes = rng.integers(1, _DST_MAX + 1, messages)
    # The first few of a random permutation of the groups are a random set of them.
    order = rng.random((messages, _GROUPS)).argsort(axis=1)[:, :_DST_MAX] + 1
    order[np.arange(_DST_MAX) >= sizes[:, None]] = _GROUPS + 1
    order.sort(axis=1)
    dst = order[order <= _GROUPS]
    multicasts = _multicasts(sizes, dst, rng)
    number = np.repeat(np.arange(messages), sizes)
    return make_run(_info(), multicasts, _deliveries(multicasts, number, dst), _wire(multicasts, number, dst), [])


def _info() -> RunInfo:
    members = [tuple(range(g * _REPLICAS, (g + 1) * _REPLICAS)) for g in range(_GROUPS)]
    return RunInfo(
        run_id="bench",
        protocol="none",
        seed=_SEED,
        complete=True,
        groups=tuple(GroupInfo(index + 1, processes) for index, processes in enumerate(members)),
        correct=tuple(range(_GROUPS * _REPLICAS)),
        claims=_ALL,
    )


def _multicasts(sizes: np.ndarray, dst: np.ndarray, rng: np.random.Generator) -> Multicasts:
    count = len(sizes)
    client = rng.integers(0, _CLIENTS, count)
    seq = np.empty(count, np.int64)
    for number in range(_CLIENTS):
        own = np.flatnonzero(client == number)
        seq[own] = np.arange(len(own))
    sender = client + _GROUPS * _REPLICAS
    return Multicasts(
        sender << SEQ_BITS | seq,
        sender,
        seq,
        np.concatenate(([0], np.cumsum(sizes))),
        dst.astype(np.int32),
        np.arange(count) * 10,
        np.full(count, 64, np.int32),
    )


def _deliveries(multicasts: Multicasts, number: np.ndarray, dst: np.ndarray) -> Deliveries:
    parts: list[np.ndarray] = []
    columns: list[tuple[int, int]] = []
    for group in range(1, _GROUPS + 1):
        mine = number[dst == group]
        for replica in range(_REPLICAS):
            parts.append(mine)
            columns.append(((group - 1) * _REPLICAS + replica, group))
    lengths = [len(part) for part in parts]
    which = np.concatenate(parts)
    return Deliveries(
        np.repeat(np.array([process for process, _ in columns], np.int32), lengths),
        np.repeat(np.array([group for _, group in columns], np.int32), lengths),
        np.concatenate([np.arange(length) for length in lengths]),
        multicasts.msg[which],
        np.full(len(which), FINAL, np.int8),
        (which + 1) * GROUP_ID_LIMIT + multicasts.dst[multicasts.dst_start[which]],
        multicasts.t_us[which] + 150,
    )


def _wire(multicasts: Multicasts, number: np.ndarray, dst: np.ndarray) -> WireRows:
    """The sender's message to every member of its destinations, and a vote inside the group for each."""
    about = np.repeat(number, _REPLICAS)
    receiver = np.repeat(dst - 1, _REPLICAS) * _REPLICAS + np.tile(np.arange(_REPLICAS), len(dst))
    leader = receiver // _REPLICAS * _REPLICAS
    count = len(about)
    sent = multicasts.t_us[about]
    return WireRows(
        np.concatenate((multicasts.sender[about], receiver)),
        np.concatenate((receiver, leader)),
        np.repeat(np.array([0, 1], np.int32), count),
        ("START", "2b"),
        np.concatenate((multicasts.msg[about], np.full(count, np.iinfo(np.int64).min))),
        np.full(2 * count, 64, np.int32),
        np.concatenate((sent, sent + 50)),
        np.concatenate((sent + 50, sent + 100)),
    )


def measure(sizes: Sizes, progress: Progress) -> list[Figure]:
    progress(f"building a run of {sizes.checker_deliveries:,} deliveries")
    run = good_run(sizes.checker_deliveries)
    times: list[float] = []
    for number in range(sizes.checker_rounds):
        progress(f"round {number + 1} of {sizes.checker_rounds}")
        seconds, report = cpu_seconds(lambda: check_run(run))
        assert report.verdict == "pass", f"the checker refuses a good run: {report.violations or report.reasons}"
        times.append(seconds)
    detail = (
        f"{len(run.deliveries):,} deliveries of {len(run.multicasts):,} messages, {len(run.wire):,} wire rows, "
        f"{_GROUPS} groups of {_REPLICAS}, all properties; best of {len(times)}"
    )
    return [Figure("checker", min(times), "CPU s", detail, _TARGET_S, is_limit=True)]
