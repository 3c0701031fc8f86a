"""What a watch shows to people: findings as they come, and one table that stays in its place, in 80 columns."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from amcast.cli import _watch

RUN = "/a/folder/with/a/name/that/is/longer/than/a/terminal/is/wide/and/then/some/more/live"


def status(what: str, verdict: str, verified: int, **more: Any) -> dict[str, Any]:
    counts = {"verified": verified, "in_flight": 12, "deliveries": 6 * verified, "held": 1_234}
    properties = {"prefix": "fail" if verdict == "fail" else "pass", "agreement": "unknown"}
    reasons = {"agreement": "the run did not come to its end: what is missing might still have come"}
    return {"event": what, "verdict": verdict, "properties": properties, "reasons": reasons, **counts, **more}


EVENTS = [
    status("batch", "unknown", 1_000_000, lag_s=0.4),
    {"event": "violation", "property": "prefix", "explanation": "g1.p0 delivered m7 [sic] before m9"},
    status("batch", "fail", 123_456_789, lag_s=2.0),
    status("end", "fail", 123_456_790),
]


def shown(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> str:
    out = StringIO()
    console = Console(file=out, width=80, force_terminal=is_terminal, color_system=None, legacy_windows=False)
    monkeypatch.setattr(_watch, "console", console)
    with _watch._Screen(RUN) as screen:
        for event in EVENTS:
            screen.show(event)
    return out.getvalue()


def test_the_table_is_live_where_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_terminal=True)
    assert text.index("1,000,000") < text.index("m7 [sic] before m9") < text.index("123,456,789")
    assert text.count("watching") == text.count("in flight") >= 3, "it is drawn again with each event"
    assert "\x1b[2K" in text, "and what was there before is wiped out"
    assert text.endswith(plain_end(monkeypatch)), "what stays on the screen is the end"


def plain_end(monkeypatch: pytest.MonkeyPatch) -> str:
    lines = shown(monkeypatch, is_terminal=False).splitlines(keepends=True)
    return "".join(lines[next(at for at, line in enumerate(lines) if line.startswith("verified")) :])


def test_elsewhere_only_findings_and_the_end_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_terminal=False)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "prefix: g1.p0 delivered m7 [sic] before m9"
    assert lines[1].startswith("watching /a/folder/")
    assert "2.0 s" in text, "the last lag that is known"
    assert "123,456,790" in text
    assert "123,456,789" not in text
