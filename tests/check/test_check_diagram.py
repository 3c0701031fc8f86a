"""Diagrams: well formed whatever the trace says, with what matters in them, no label on top of another."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from random import Random

from amcast.check import Violation, check_run, space_time_svg, space_time_text
from amcast.trace import Run
from tests.check.traces import JUDGED, Row, Trace, damage, from_logs, good_trace

SVG = "{http://www.w3.org/2000/svg}"


def violation_of(run: Run, name: str) -> Violation:
    return next(violation for violation in check_run(run).violations if violation.property == name)


def labels(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{SVG}text"))


def inversion() -> Trace:
    trace = from_logs({7: (1, 2), 9: (1, 2), 11: (1,)}, {1: [7, 11, 9], 2: [9, 7]}, replicas=2)
    client = trace.sent[0].sender
    trace.wire = [(client, 0, "START <&>", 7, 0, 300), (client, 2, "START <&>", 9, 100, None)]
    trace.faults = [(0, 500, "crash", ""), (0, 600, "restart", "")]
    trace.optimistic[0] = [Row(0, 9, 1, None, 1000), Row(1, 7, 1, None, 1000)]
    return trace


def test_svg_shows_the_processes_and_messages_of_the_violation() -> None:
    run = inversion().run()
    svg = space_time_svg(run, violation_of(run, "prefix"))
    words = [label.text for label in labels(svg)]
    assert {"c4", "g1.p0", "g2.p0", "m7", "m9", "crash", "START <&>"} <= set(words)
    assert not {"g1.p1", "g2.p1", "m11"} & set(words), "only what matters is drawn"
    red = [label.text for label in labels(svg) if "bad" in (label.get("class") or "")]
    assert sorted(map(str, red)) == ["m7", "m7", "m9", "m9"]


def test_svg_is_self_contained_and_the_same_each_time() -> None:
    run = inversion().run()
    violation = violation_of(run, "prefix")
    svg = space_time_svg(run, violation)
    assert svg == space_time_svg(run, violation)
    assert not re.findall(r"href|@import|url\((?!#)", svg)


def test_a_lane_follows_positions_where_its_clock_goes_back() -> None:
    """g1.p0 delivers m7 before m9, as the sentence says, though its clock says the opposite."""
    trace = from_logs({7: (1, 2), 9: (1, 2)}, {1: [7, 9], 2: [9, 7]})
    trace.logs[0][0].t_us, trace.logs[0][1].t_us = 5_000, 3_000
    run = trace.run()
    violation = violation_of(run, "prefix")
    text = space_time_text(run, violation)
    heading = next(line for line in text.splitlines() if line.split() == ["c2", "g1.p0", "g2.p0"])
    column = heading.index("g1.p0")
    lane = [line[column - 5 : column + 10] for line in text.splitlines()]
    marks = [mark for line in lane for mark in re.findall(r"\[(m\d)\]", line)]
    assert marks == ["m7", "m9"]
    assert "g1.p0: by positions, since the times of deliveries go back" in text
    svg = space_time_svg(run, violation)
    places = {(label.get("y"), label.text): float(label.get("x") or 0) for label in labels(svg)}
    heights = sorted({y for (y, text_) in places if text_ in ("m7", "m9")}, key=lambda y: float(y or 0))
    assert places[heights[-2], "m7"] < places[heights[-2], "m9"]
    assert places[heights[-1], "m9"] < places[heights[-1], "m7"]


def test_what_is_missing_is_drawn() -> None:
    run = from_logs({7: (1, 2), 9: (1, 2)}, {1: [7], 2: [9]}).run()
    svg = space_time_svg(run, violation_of(run, "prefix"))
    assert {"no m7", "no m9"} <= {label.text for label in labels(svg)}


def test_labels_do_not_overlap() -> None:
    """Events of one process may fall on one microsecond: their labels still stand side by side."""
    trace = good_trace(Random(4), groups=3, replicas=3, messages=40)
    trace.swap(1, 3, 4)
    trace.swap(1, 10, 12)
    for row in trace.logs[1]:
        row.t_us = 4000
    run = trace.run()
    for violation in check_run(run).violations:
        boxes: dict[float, list[tuple[float, float]]] = {}
        for label in labels(space_time_svg(run, violation)):
            if "halo" in (label.get("class") or ""):
                half = 3.2 * len(label.text or "")
                x = float(label.get("x") or 0)
                boxes.setdefault(float(label.get("y") or 0), []).append((x - half, x + half))
        for row in boxes.values():
            row.sort()
            assert all(left[1] <= right[0] for left, right in pairwise(row))


def test_text_fits_a_terminal() -> None:
    run = inversion().run()
    text = space_time_text(run, violation_of(run, "prefix"))
    assert max(map(len, text.splitlines())) <= 80
    assert "[m7]!" in text
    assert "g2.p0" in text
    assert "START" in text


def test_every_violation_of_a_damaged_run_can_be_drawn() -> None:
    drawn = set()
    for seed in range(80):
        rng = Random(seed)
        trace = good_trace(rng, groups=rng.randint(1, 6), replicas=rng.randint(1, 5), messages=15)
        for _ in range(3):
            damage(rng, trace)
        run = trace.run()
        for violation in check_run(run).violations:
            drawn.add(violation.property)
            ET.fromstring(space_time_svg(run, violation))
            assert max(map(len, space_time_text(run, violation).splitlines())) <= 80
    assert drawn == set(JUDGED)
