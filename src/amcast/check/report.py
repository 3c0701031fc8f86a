"""The answer of a check: pass, fail or unknown for each property, and evidence that people can follow.

Unknown is an answer of its own: a run that was cut short can't prove that something never came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from ..core import MessageId, ProcessId

Verdict = Literal["pass", "fail", "unknown"]

ALWAYS_CHECKED = ("positions", "integrity", "validity", "agreement", "replicas", "prefix", "acyclic")
ABOUT_THE_WIRE = ("genuine", "minimality", "quasi-genuine", "partially-genuine")
CHECKED_IF_CLAIMED = ("timestamps", "fifo", *ABOUT_THE_WIRE, "local-order")
PROPERTIES = ALWAYS_CHECKED + CHECKED_IF_CLAIMED

VIOLATIONS_PER_PROPERTY = 5  # one broken row can break thousands of others: the first few tell the story


class Violation(msgspec.Struct, frozen=True):
    """For `prefix` and `acyclic` the lists are a cycle.

    processes[i] delivered messages[i] before messages[i + 1] (or without it), and the last before the first.
    """

    property: str
    messages: list[MessageId]
    processes: list[ProcessId]
    explanation: str


class Report(msgspec.Struct, frozen=True):
    properties: dict[str, Verdict]
    violations: list[Violation]
    reasons: dict[str, str]  # why a verdict is unknown

    @property
    def verdict(self) -> Verdict:
        verdicts = self.properties.values()
        if "fail" in verdicts:
            return "fail"
        return "unknown" if "unknown" in verdicts else "pass"

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = msgspec.to_builtins(self)
        return {"verdict": self.verdict, **document}


class Findings:
    """What the checks of one run have found so far."""

    def __init__(self) -> None:
        self._verdicts: dict[str, Verdict] = {}
        self._reasons: dict[str, str] = {}
        self._violations: dict[str, list[Violation]] = {}

    def begin(self, name: str) -> None:
        """From here on the property holds unless something is found against it."""
        self._verdicts[name] = "pass"

    def unknown(self, name: str, reason: str) -> None:
        self._verdicts[name] = "unknown"
        self._reasons[name] = reason

    def is_full(self, name: str) -> bool:
        """There is enough evidence: more would be cut off."""
        return len(self._violations.get(name, ())) >= VIOLATIONS_PER_PROPERTY

    def fail(self, name: str, messages: Iterable[MessageId], processes: Iterable[ProcessId], explanation: str) -> None:
        self._verdicts[name] = "fail"
        if not self.is_full(name):
            # numpy's integers break JSON: none passes this line.
            violation = Violation(name, [int(m) for m in messages], [int(p) for p in processes], explanation)
            self._violations.setdefault(name, []).append(violation)

    def report(self) -> Report:
        evidence = [violation for name in self._verdicts for violation in self._violations.get(name, ())]
        reasons = {name: why for name, why in self._reasons.items() if self._verdicts[name] == "unknown"}
        return Report(self._verdicts, evidence, reasons)
