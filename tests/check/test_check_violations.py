"""Each damage that a check exists to find, and that it is found under the right name."""

from __future__ import annotations

import json
from random import Random

import pytest

from amcast.check import Report, Violation, check_run
from amcast.check.report import VIOLATIONS_PER_PROPERTY
from amcast.trace import Recorder
from tests.check.evidence import assert_evidence
from tests.check.traces import Row, Sent, Trace, empty_trace, from_logs, good_trace


def judge(trace: Trace) -> Report:
    """The report, after each piece of its evidence was held against the trace."""
    run = trace.run()
    report = check_run(run)
    for violation in report.violations:
        assert_evidence(run, violation)
    return report


def first(report: Report, name: str) -> Violation:
    return next(violation for violation in report.violations if violation.property == name)


def failed(report: Report) -> set[str]:
    return {name for name, verdict in report.properties.items() if verdict == "fail"}


@pytest.fixture
def trace() -> Trace:
    return good_trace(Random(7), groups=3, replicas=3, messages=30)


def shared_neighbours(trace: Trace, process: int) -> int:
    """Where two neighbours in a log have a second destination in common."""
    log = trace.logs[process]
    for at in range(len(log) - 1):
        if len(set(trace.message(log[at].msg).dst) & set(trace.message(log[at + 1].msg).dst)) > 1:
            return at
    raise AssertionError("the trace has no such messages")


def test_a_good_trace_passes_every_check(trace: Trace) -> None:
    report = judge(trace)
    assert report.verdict == "pass"
    assert set(report.properties) == {
        "positions",
        "integrity",
        "validity",
        "agreement",
        "replicas",
        "prefix",
        "acyclic",
        "timestamps",
        "fifo",
        "genuine",
        "minimality",
        "quasi-genuine",
        "partially-genuine",
        "local-order",
    }


def test_what_is_not_claimed_is_not_checked(trace: Trace) -> None:
    trace.claims = ()
    assert not {"fifo", "genuine"} & set(judge(trace).properties)


def test_an_empty_run_passes() -> None:
    trace = empty_trace(2, 3)
    trace.claims = ()
    assert judge(trace).verdict == "pass"


def test_a_claim_that_nobody_can_check_is_unknown(trace: Trace) -> None:
    trace.claims = ("teleportation",)
    report = judge(trace)
    assert report.properties["teleportation"] == "unknown"
    assert report.verdict == "unknown"


# ------------------------------------------------------------------------------------- order


def test_swap_in_one_replica(trace: Trace) -> None:
    trace.claims = ()
    trace.swap(1, 3, 4)
    report = judge(trace)
    assert {"replicas", "prefix", "acyclic"} <= failed(report)
    assert not {"positions", "integrity", "validity", "agreement"} & failed(report)
    here, there = (trace.logs[1][3].msg, trace.logs[1][4].msg)
    assert set(first(report, "prefix").messages) == {here, there}
    assert 1 in first(report, "replicas").processes


def test_swap_between_groups(trace: Trace) -> None:
    at = shared_neighbours(trace, 0)
    for process in trace.groups[1]:
        trace.swap(process, at, at + 1)
    report = judge(trace)
    assert {"prefix", "acyclic"} <= failed(report)
    assert "replicas" not in failed(report)
    violation = first(report, "prefix")
    assert set(violation.messages) == {trace.logs[0][at].msg, trace.logs[0][at + 1].msg}


def test_an_inversion_is_explained_in_words() -> None:
    report = judge(from_logs({7: (1, 2), 9: (1, 2)}, {1: [7, 9], 2: [9, 7]}, replicas=2))
    words = "g1.p0 delivered m7 before m9; g2.p0 delivered m9 before m7"
    assert first(report, "prefix").explanation == first(report, "acyclic").explanation == words


@pytest.mark.parametrize("complete", [True, False])
def test_one_message_at_each_of_two_groups_is_a_violation(complete: bool) -> None:
    trace = from_logs({7: (1, 2), 9: (1, 2)}, {1: [7], 2: [9]})
    trace.complete = complete
    report = judge(trace)
    assert {"prefix", "acyclic"} <= failed(report)
    words = "g1.p0 delivered m7 without m9; g2.p0 delivered m9 without m7"
    assert first(report, "prefix").explanation == words


def test_a_group_that_is_behind_is_no_violation() -> None:
    trace = from_logs({1: (1, 2), 2: (2,), 3: (1, 2), 4: (1,)}, {1: [1, 3, 4], 2: [1]})
    trace.complete = False
    report = judge(trace)
    assert not failed(report)
    assert report.verdict == "unknown"
    assert set(report.reasons) == {"validity", "agreement"}


def test_a_group_that_skipped_a_message_contradicts_those_that_did_not() -> None:
    trace = from_logs({1: (1, 2), 2: (1, 2), 3: (1, 2)}, {1: [1, 2, 3], 2: [1, 3]})
    trace.complete = False
    assert first(judge(trace), "prefix").messages in ([2, 3], [3, 2])


def ring(size: int, noise: int = 0) -> Trace:
    """size messages, size groups, each message to two neighbours: together a cycle, no two of them apart."""
    dst = {number: tuple(sorted((number + 1, (number + 1) % size + 1))) for number in range(size)}
    logs = {group: [(group - 2) % size, group - 1] for group in range(1, size + 1)}
    for extra in range(100, 100 + noise):
        dst[extra] = tuple(range(1, size + 1))
    for log in logs.values():
        log += range(100, 100 + noise)
    return from_logs(dst, logs, replicas=2)


@pytest.mark.parametrize("size", range(3, 7))
@pytest.mark.parametrize("noise", [0, 50])
def test_a_cycle_without_a_pairwise_conflict(size: int, noise: int) -> None:
    report = judge(ring(size, noise))
    assert failed(report) == {"acyclic"}
    (violation,) = report.violations
    assert sorted(violation.messages) == list(range(size))


def test_a_long_cycle_in_front_does_not_hide_a_short_one_behind() -> None:
    trace = ring(6)
    for group in (1, 2, 3):
        log = trace.logs[trace.groups[group][0]]
        others = {1: [23, 21], 2: [21, 22], 3: [22, 23]}[group]
        for process in trace.groups[group]:
            trace.logs[process] = [
                *log,
                *(Row(2 + at, msg, group, None, 5000) for at, msg in enumerate(others)),
            ]
    dst = {21: (1, 2), 22: (2, 3), 23: (1, 3)}
    trace.sent += [Sent(msg, 99, msg, groups, 0) for msg, groups in dst.items()]
    violation = first(judge(trace), "acyclic")
    assert sorted(violation.messages) == [21, 22, 23]


def test_diverging_tails(trace: Trace) -> None:
    log = trace.logs[2]
    log[-1].msg, log[-2].msg = log[-2].msg, log[-1].msg
    assert {"replicas", "prefix"} <= failed(judge(trace))


# ------------------------------------------------------------------------------ what is missing


def test_loss_in_a_replica(trace: Trace) -> None:
    lost = trace.drop(4, 5).msg
    report = judge(trace)
    assert {"validity", "agreement", "replicas", "prefix"} <= failed(report)
    assert first(report, "agreement").messages == [lost]
    assert first(report, "agreement").processes[1:] == [4]
    assert first(report, "validity").processes == [4]


def test_loss_of_the_last_message_in_a_replica(trace: Trace) -> None:
    lost = trace.logs[4].pop().msg
    report = judge(trace)
    assert failed(report) == {"validity", "agreement", "replicas"}
    assert first(report, "replicas").messages == [lost]


def test_loss_in_a_whole_group(trace: Trace) -> None:
    at = next(at for at, row in enumerate(trace.logs[0]) if len(trace.message(row.msg).dst) > 1)
    lost = {trace.drop(process, at).msg for process in trace.groups[1]}
    report = judge(trace)
    assert {"validity", "agreement"} <= failed(report)
    assert "replicas" not in failed(report)
    assert {first(report, "agreement").messages[0]} == lost


def test_loss_everywhere_breaks_validity_only() -> None:
    trace = from_logs({1: (1, 2), 2: (1, 2)}, {1: [1], 2: [1]}, replicas=3)
    assert failed(judge(trace)) == {"validity"}


def test_loss_everywhere_is_no_fault_of_a_sender_that_crashed() -> None:
    trace = from_logs({1: (1, 2), 2: (1, 2)}, {1: [1], 2: [1]}, replicas=3)
    client = trace.sent[0].sender
    trace.faults = [(client, 50, "crash", "")]
    assert judge(trace).verdict == "pass"
    trace.faults.append((client, 60, "restart", ""))
    assert failed(judge(trace)) == {"validity"}


def test_a_member_that_sends_is_correct_if_the_run_says_so() -> None:
    trace = from_logs({1: (1,), 2: (1,)}, {1: [1]}, replicas=3)
    trace.sent[1].sender = 2
    assert failed(judge(trace)) == {"validity"}
    trace.correct = (0, 1)
    assert judge(trace).verdict == "pass"


def test_agreement_is_uniform() -> None:
    """What only a crashed process delivered must be delivered by all correct ones."""
    trace = from_logs({1: (1,)}, {1: [1]}, replicas=3)
    trace.faults = [(trace.sent[0].sender, 0, "crash", ""), (0, 2000, "crash", "")]
    trace.correct = (1, 2)
    trace.logs[1], trace.logs[2] = [], []
    assert failed(judge(trace)) == {"agreement"}
    trace.complete = False
    assert judge(trace).verdict == "unknown"


def test_a_crashed_replica_may_stop_early(trace: Trace) -> None:
    del trace.logs[5][3:]
    trace.correct = tuple(process for process in trace.correct if process != 5)
    assert judge(trace).verdict == "pass"


# ----------------------------------------------------------------------------------- integrity


def test_duplicate(trace: Trace) -> None:
    again = trace.logs[3][2]
    trace.logs[3].append(Row(len(trace.logs[3]), again.msg, again.grp, None, 9000))
    report = judge(trace)
    assert {"integrity", "replicas"} <= failed(report)
    assert not {"prefix", "acyclic"} & failed(report)
    assert first(report, "integrity").messages == [again.msg]


def test_wrong_destination(trace: Trace) -> None:
    stranger = next(sent.msg for sent in trace.sent if 1 not in sent.dst)
    trace.logs[0].append(Row(len(trace.logs[0]), stranger, 1, None, 9000))
    violation = first(judge(trace), "integrity")
    assert (violation.messages, violation.processes) == ([stranger], [0])
    assert "which was multicast to" in violation.explanation


def test_wrong_group_column(trace: Trace) -> None:
    trace.logs[0][2].grp = 3
    assert failed(judge(trace)) == {"integrity"}


def test_unknown_message(trace: Trace) -> None:
    for process in trace.groups[2]:
        trace.logs[process].append(Row(len(trace.logs[process]), 4711, 2, None, 9000))
    report = judge(trace)
    assert failed(report) == {"integrity"}
    assert "m4711, which nobody multicast" in first(report, "integrity").explanation


def test_a_delivery_by_a_client(trace: Trace) -> None:
    trace.logs[50] = [Row(0, trace.sent[0].msg, 1, None, 9000)]
    assert failed(judge(trace)) == {"integrity"}


def test_one_id_for_two_messages(trace: Trace) -> None:
    trace.sent.append(trace.sent[3])
    assert failed(judge(trace)) == {"integrity"}


def test_optimistic_deliveries_have_integrity_and_positions_but_no_order(trace: Trace) -> None:
    trace.optimistic[0] = [Row(at, row.msg, 1, None, 1) for at, row in enumerate(reversed(trace.logs[0]))]
    assert judge(trace).verdict == "pass"
    trace.optimistic[0][1].msg = trace.optimistic[0][0].msg
    del trace.optimistic[0][4]
    assert failed(judge(trace)) == {"integrity", "positions"}


# ----------------------------------------------------------------------------------- positions


def test_position_gap(trace: Trace) -> None:
    row = trace.logs[6][4]
    for later in trace.logs[6][4:]:
        later.pos += 1
    report = judge(trace)
    assert failed(report) == {"positions"}
    assert len(report.violations) == 1, "only the first wrong position counts"
    assert first(report, "positions").messages == [row.msg]


def test_position_twice(trace: Trace) -> None:
    trace.logs[6][-1].pos -= 1
    assert failed(judge(trace)) == {"positions"}


def test_a_log_that_does_not_begin_at_zero(trace: Trace) -> None:
    for row in trace.logs[6]:
        row.pos += 1
    assert "begin at position 1" in first(judge(trace), "positions").explanation


def test_the_order_of_rows_is_not_the_order_of_delivery(trace: Trace) -> None:
    for log in trace.logs.values():
        Random(1).shuffle(log)
    assert judge(trace).verdict == "pass"


# ------------------------------------------------------------------------------------ restored


def test_a_restored_replica_is_excused(trace: Trace) -> None:
    trace.restore(1, 3, 6)
    assert judge(trace).verdict == "pass"


def test_a_replica_that_was_restored_to_the_end(trace: Trace) -> None:
    trace.restore(1, 3, len(trace.logs[1]))
    assert judge(trace).verdict == "pass"


def test_a_gap_that_does_not_end_where_the_state_did(trace: Trace) -> None:
    trace.restore(1, 3, 6)
    trace.logs[1] = [row for row in trace.logs[1] if row.pos != 6]
    assert {"positions", "agreement"} <= failed(judge(trace))


def test_a_replica_that_was_handed_what_nobody_delivered(trace: Trace) -> None:
    end = len(trace.logs[1])
    trace.restore(1, end, end + 2)
    report = judge(trace)
    assert failed(report) == {"positions"}
    assert f"position {end}" in first(report, "positions").explanation


def test_restored_far_beyond_any_log_takes_no_time(trace: Trace) -> None:
    trace.faults.append((1, 1, "restored", json.dumps({"position": 2**62})))
    assert "positions" in failed(check_run(trace.run()))


# ---------------------------------------------------------------------------------- timestamps


def test_two_timestamps_for_one_message(trace: Trace) -> None:
    row = trace.logs[0][-1]
    assert row.ts is not None
    row.ts += 1
    report = judge(trace)
    assert failed(report) == {"timestamps"}
    assert first(report, "timestamps").messages == [row.msg]


def test_one_timestamp_for_two_messages() -> None:
    trace = from_logs({1: (1,), 2: (2,)}, {1: [1], 2: [2]})
    trace.logs[0][0].ts = trace.logs[1][0].ts = 5
    assert failed(judge(trace)) == {"timestamps"}


def test_timestamps_that_fall_along_a_log() -> None:
    trace = from_logs({1: (1,), 2: (1,)}, {1: [1, 2]})
    trace.logs[0][0].ts, trace.logs[0][1].ts = 6, 5
    assert failed(judge(trace)) == {"timestamps"}


def test_timestamps_that_stand_still_along_a_log() -> None:
    trace = from_logs({1: (1,)}, {1: [1, 1]})
    trace.logs[0][0].ts = trace.logs[0][1].ts = 5
    assert failed(judge(trace)) == {"integrity", "timestamps"}


def test_timestamps_that_are_claimed_and_not_given() -> None:
    trace = from_logs({1: (1,)}, {1: [1]})
    assert "timestamps" not in judge(trace).properties
    trace.claims = ("timestamps",)
    assert judge(trace).properties["timestamps"] == "unknown"


# ---------------------------------------------------------------------------------------- fifo


def test_fifo_order_broken_everywhere_alike() -> None:
    trace = from_logs({1: (1, 2), 2: (1, 2)}, {1: [2, 1], 2: [2, 1]}, replicas=2)
    assert judge(trace).verdict == "pass"
    trace.claims = ("fifo",)
    report = judge(trace)
    assert failed(report) == {"fifo"}
    assert first(report, "fifo").messages == [1, 2]


def test_fifo_order_with_a_message_left_out() -> None:
    trace = from_logs({1: (1,), 2: (1,)}, {1: [2]})
    trace.complete = False
    trace.claims = ("fifo",)
    assert "without m1" in first(judge(trace), "fifo").explanation


def test_fifo_order_does_not_bind_different_destinations() -> None:
    trace = from_logs({1: (1,), 2: (2,), 3: (1,)}, {1: [1, 3], 2: []})
    trace.complete = False
    trace.claims = ("fifo",)
    assert "fifo" not in failed(judge(trace))


# ------------------------------------------------------------------------------------- genuine


@pytest.fixture
def two_of_three() -> Trace:
    trace = from_logs({1: (1, 2), 2: (3,)}, {1: [1], 2: [1], 3: [2]}, replicas=2)
    trace.claims = ("genuine",)
    client = trace.sent[0].sender
    trace.wire = [(client, 0, "START", 1, 0, 10), (0, 2, "SEND", 1, 20, None), (0, 1, "PING", None, 30, 40)]
    return trace


def test_genuine_traffic_passes(two_of_three: Trace) -> None:
    client = two_of_three.sent[0].sender
    two_of_three.wire += [(1, 3, "PING", None, 50, 60), (5, client, "REPLY", None, 50, 60)]
    assert judge(two_of_three).verdict == "pass"


def test_a_stranger_is_told_about_a_message(two_of_three: Trace) -> None:
    two_of_three.wire.append((0, 4, "FORWARD", 1, 50, 60))
    report = judge(two_of_three)
    assert failed(report) == {"genuine"}
    words = "g1.p0 sent FORWARD to g3.p0 about m1, which does not concern g3.p0"
    assert first(report, "genuine").explanation == words


def test_groups_that_share_no_message_speak(two_of_three: Trace) -> None:
    two_of_three.wire.append((0, 4, "GOSSIP", None, 50, 60))
    assert failed(judge(two_of_three)) == {"genuine"}


def test_clients_that_share_nothing_speak(two_of_three: Trace) -> None:
    two_of_three.wire.append((6, 77, "GOSSIP", None, 50, 60))
    assert failed(judge(two_of_three)) == {"genuine"}


def test_traffic_about_a_message_that_nobody_multicast(two_of_three: Trace) -> None:
    two_of_three.wire.append((0, 1, "SEND", 4711, 50, 60))
    assert failed(judge(two_of_three)) == {"genuine"}


def test_genuineness_is_unknown_without_the_wire(two_of_three: Trace) -> None:
    two_of_three.wire = []
    report = judge(two_of_three)
    assert report.properties["genuine"] == "unknown"
    assert report.verdict == "unknown"


# ------------------------------------------------------------------------ weaker than genuine


def test_minimality_lets_groups_speak_that_some_message_concerns(two_of_three: Trace) -> None:
    two_of_three.claims = ("minimality",)
    two_of_three.wire.append((0, 4, "NOTIF", 1, 50, 60))
    assert judge(two_of_three).properties["minimality"] == "pass"


def test_minimality_forbids_groups_that_no_message_concerns() -> None:
    trace = from_logs({1: (1, 3)}, {1: [1], 3: [1]})
    trace.claims = ("minimality",)
    trace.wire = [(0, 2, "SEND", 1, 0, 10), (0, 1, "FLUSH", None, 20, 30)]
    assert judge(trace).verdict == "pass"
    trace.wire.append((0, 1, "NOTIF", 1, 50, 60))
    report = judge(trace)
    assert failed(report) == {"minimality"}
    words = "g1.p0 sent NOTIF to g2.p0, but no message concerns g2.p0"
    assert first(report, "minimality").explanation == words


def test_quasi_genuine_concerns_strangers_only(two_of_three: Trace) -> None:
    two_of_three.claims = ("quasi-genuine",)
    two_of_three.wire.append((0, 4, "FORWARD", 1, 50, 60))  # another message concerns it
    assert judge(two_of_three).verdict == "pass"
    two_of_three.wire.append((0, 77, "GOSSIP", None, 50, 60))
    report = judge(two_of_three)
    assert failed(report) == {"quasi-genuine"}
    words = "g1.p0 sent GOSSIP to c77, but no message concerns c77"
    assert first(report, "quasi-genuine").explanation == words


def test_partially_genuine_concerns_messages_to_one_group_only(two_of_three: Trace) -> None:
    two_of_three.claims = ("partially-genuine",)
    two_of_three.wire.append((0, 4, "FORWARD", 1, 50, 60))  # an auxiliary group orders a message to two
    assert judge(two_of_three).verdict == "pass"
    two_of_three.wire.append((4, 0, "FORWARD", 2, 50, 60))
    report = judge(two_of_three)
    assert failed(report) == {"partially-genuine"}
    words = "g3.p0 sent FORWARD to g1.p0 about m2, which does not concern g1.p0"
    assert first(report, "partially-genuine").explanation == words


@pytest.mark.parametrize("name", ["minimality", "quasi-genuine", "partially-genuine"])
def test_the_weaker_promises_need_the_wire_too(two_of_three: Trace, name: str) -> None:
    two_of_three.claims = (name,)
    two_of_three.wire = []
    assert judge(two_of_three).properties[name] == "unknown"


# -------------------------------------------------------------------------------------- report


def test_the_number_of_violations_is_bounded(trace: Trace) -> None:
    for log in trace.logs.values():
        for row in log:
            row.msg += 5000
    report = judge(trace)
    names = [violation.property for violation in report.violations]
    assert max(names.count(name) for name in names) == VIOLATIONS_PER_PROPERTY


def test_the_report_is_plain_json(trace: Trace) -> None:
    trace.drop(4, 5)
    document = judge(trace).to_json()
    assert json.loads(json.dumps(document)) == document
    assert document["verdict"] == "fail"
    assert {"properties", "violations", "reasons"} < set(document)


def test_fail_outweighs_unknown(trace: Trace) -> None:
    trace.complete = False
    trace.swap(1, 3, 4)
    assert judge(trace).verdict == "fail"


def test_a_cycle_in_front_of_a_large_knot() -> None:
    """A cycle of three in front of everything blocks thousands of messages behind it."""
    rng = Random(5)
    recorder, pos = Recorder(), [0] * 16
    cycle = {1: (1, 2), 2: (2, 3), 3: (1, 3)}
    for msg, dst in cycle.items():
        recorder.multicast(msg, 99, msg, dst, 0, 1)
    deliveries = [(1, 3), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    for msg in range(10, 20_000):
        dst = tuple(sorted(rng.sample(range(1, 17), 2)))
        recorder.multicast(msg, 99, msg, dst, 0, 1)
        deliveries += [(group, msg) for group in dst]
    for group, msg in deliveries:
        recorder.delivery(group - 1, group, pos[group - 1], msg, 0, None, pos[group - 1])
        pos[group - 1] += 1
    trace = empty_trace(16, 1)
    trace.claims = ()
    run = recorder.run(trace.info())
    violation = first(check_run(run), "acyclic")
    assert sorted(violation.messages) == [1, 2, 3]
