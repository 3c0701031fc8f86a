"""What a trace can't show does not pass: properties that are listed as unproven, senders that nobody recorded."""

from __future__ import annotations

import json
from random import Random

import pytest

from amcast.check import check_run
from amcast.trace.schema import CRASH, UNKNOWN, NamesInfo, decode_run_info, encode_run_info
from tests.check.traces import JUDGED, Trace, good_trace


def lost(trace: Trace) -> int:
    """All replicas of a group lose the last message that they delivered, if it was addressed to them alone."""
    for group, members in trace.groups.items():
        last = trace.logs[members[0]][-1].msg
        if trace.message(last).dst == (group,):
            for process in members:
                trace.drop(process, -1)
                trace.optimistic.get(process, [])[:] = [
                    row for row in trace.optimistic.get(process, []) if row.msg != last
                ]
            return last
    raise AssertionError("no group ends with a message of its own")


def trace_without_senders() -> Trace:
    trace = good_trace(Random(2), dst_max=1)
    for sent in trace.sent:
        sent.sender = UNKNOWN
    return trace


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_unproven_does_not_pass(name: str) -> None:
    trace = good_trace(Random(1))
    trace.unproven = {name: "nobody knows"}
    report = check_run(trace.run())
    assert {each for each, verdict in report.properties.items() if verdict != "pass"} == {name}
    assert report.reasons == {name: "nobody knows"}
    assert report.verdict == "unknown"


def test_what_is_unproven_may_fail() -> None:
    trace = good_trace(Random(1))
    trace.unproven = {"replicas": "nobody knows", "positions": "nobody knows"}
    trace.swap(0, 0, 1)
    report = check_run(trace.run())
    assert report.properties["replicas"] == "fail"
    assert report.properties["positions"] == "unknown"


def test_unproven_validity_is_not_broken_by_what_is_not_there() -> None:
    trace = good_trace(Random(2), dst_max=1)
    lost(trace)
    assert check_run(trace.run()).properties["validity"] == "fail"
    trace.unproven = {"validity": "nobody knows what was sent"}
    assert check_run(trace.run()).properties["validity"] == "unknown"


def test_a_message_that_an_unknown_sender_lost_leaves_validity_open() -> None:
    trace = trace_without_senders()
    trace.claims = ()
    assert check_run(trace.run()).verdict == "pass", "nothing is lost, whoever sent it"
    lost(trace)
    report = check_run(trace.run())
    assert {name for name, verdict in report.properties.items() if verdict != "pass"} == {"validity"}
    assert "does not say who multicast" in report.reasons["validity"]


def test_without_senders_neither_fifo_order_nor_the_wire_is_judged() -> None:
    trace = trace_without_senders()
    report = check_run(trace.run())
    unknown = {name for name, verdict in report.properties.items() if verdict == "unknown"}
    assert unknown == {"fifo", "genuine", "minimality", "quasi-genuine", "partially-genuine"}
    assert not report.violations


def test_a_message_without_a_number_is_not_one_that_was_answered() -> None:
    trace = good_trace(Random(2), dst_max=1)
    trace.claims = ()
    message = trace.message(lost(trace))
    trace.faults.append((message.sender, 1, CRASH, json.dumps({"settled": message.seq + 1})))
    assert check_run(trace.run()).properties["validity"] == "fail", "it had an answer"
    for sent in trace.sent:
        sent.seq = UNKNOWN
    assert check_run(trace.run()).properties["validity"] == "pass", "nobody knows of an answer"


def test_run_json_keeps_what_is_unproven_and_the_names() -> None:
    info = good_trace(Random(1)).info()
    assert b"unproven" not in encode_run_info(info)
    assert b"names" not in encode_run_info(info)
    given = decode_run_info(
        b'{"run_id": "r", "protocol": "p", "seed": 0, "complete": false, "groups": [{"id": 1, "processes": [0]}],'
        b' "correct": [], "unproven": {"prefix": "why"}, "names": {"groups": {"1": "orders"}, "messages": true}}'
    )
    assert given.unproven == {"prefix": "why"}
    assert given.names == NamesInfo({1: "orders"}, messages=True)
    assert decode_run_info(encode_run_info(given)) == given
