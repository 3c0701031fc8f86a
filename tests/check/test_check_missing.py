"""No verdict is better than its evidence: a run of which rows are missing passes nothing, and is blamed for nothing."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random

import pytest

from amcast.check import check_run
from amcast.check.report import ALWAYS_CHECKED
from amcast.trace.schema import CRASH, RESTART, decode_run_info, encode_run_info
from tests.check.test_check_oracle import compare, failed, random_trace
from tests.check.traces import JUDGED, damage, from_logs, good_trace, lose_rows


def test_a_good_run_of_which_a_process_left_no_trace_is_unknown() -> None:
    trace = good_trace(Random(1))
    assert check_run(trace.run()).verdict == "pass"
    trace.missing = ("no trace of g2.p0", "no trace of g2.p1")
    report = check_run(trace.run())
    assert set(report.properties.values()) == {"unknown"}
    assert set(report.properties) == set(JUDGED)
    assert set(report.reasons.values()) == {"evidence is missing: no trace of g2.p0; no trace of g2.p1"}


def test_a_long_list_is_cut_in_the_reason() -> None:
    trace = good_trace(Random(1))
    trace.missing = tuple(f"no trace of g1.p{index}" for index in range(5))
    reason = check_run(trace.run()).reasons["agreement"]
    assert reason.endswith("no trace of g1.p0; no trace of g1.p1; no trace of g1.p2; and 2 more")


def test_what_is_missing_survives_run_json_and_old_files_have_none() -> None:
    trace = good_trace(Random(1))
    trace.missing = ("no trace of g2.p0",)
    written = encode_run_info(trace.info())
    assert decode_run_info(written) == trace.info()
    document = json.loads(written)
    del document["missing"]
    assert decode_run_info(json.dumps(document).encode()).missing == ()


@pytest.mark.parametrize("batch", range(2))
def test_missing_rows_are_nobodys_fault(batch: int) -> None:
    """A good run is never blamed for rows that were not recorded; nor does it pass."""
    for seed in range(batch * 100, batch * 100 + 100):
        rng = Random(seed)
        trace = random_trace(rng)
        lose_rows(rng, trace)
        report = check_run(trace.run())
        assert set(report.properties.values()) == {"unknown"}, f"seed {seed}: {report.violations}"


@pytest.mark.parametrize("batch", range(2))
def test_what_is_there_is_evidence_all_the_same(batch: int) -> None:
    """Whatever the checker finds without some rows, it finds with all of them; and what the definitions say."""
    found: set[str] = set()
    for seed in range(batch * 150, batch * 150 + 150):
        rng = Random(seed)
        trace = random_trace(rng)
        for _ in range(rng.choice((1, 1, 2))):
            damage(rng, trace)
        whole = failed(check_run(trace.run()))
        part = deepcopy(trace)
        lose_rows(rng, part)
        run = part.run()
        report = check_run(run)
        assert "pass" not in report.properties.values()
        assert failed(report) <= whole, f"seed {seed}"
        compare(run, report)
        found |= failed(report)
    assert found >= {"positions", "integrity", "replicas", "prefix", "acyclic", "timestamps", "genuine", "local-order"}


@pytest.mark.parametrize(
    ("faults", "verdict"),
    [
        ([], "fail"),
        ([(CRASH, "")], "pass"),
        ([(CRASH, '{"settled": 1}')], "pass"),
        ([(CRASH, '{"settled": 2}')], "fail"),
        ([(CRASH, '{"settled": 1}'), (RESTART, "")], "fail"),
        ([(CRASH, "not json")], "pass"),
    ],
)
def test_a_client_that_is_gone_is_owed_what_it_had_an_answer_to(faults: list[tuple[str, str]], verdict: str) -> None:
    trace = from_logs({10: (1,), 11: (1,)}, {1: [10]})  # 11, the client's message number 1, was never delivered
    trace.faults = [(trace.sent[0].sender, at, what, detail) for at, (what, detail) in enumerate(faults)]
    report = check_run(trace.run())
    assert report.properties["validity"] == report.verdict == verdict
    assert set(report.properties) == set(ALWAYS_CHECKED)
