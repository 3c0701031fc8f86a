"""What checks say: a verdict for each property and evidence for what fails, in the words of the in-memory checker.

Both checkers give the same names and the same document, so that a reader never asks which of them wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from ...core import MessageId, ProcessId

Verdict = Literal["pass", "fail", "unknown"]

ALWAYS_CHECKED = ("positions", "integrity", "validity", "agreement", "replicas", "prefix", "acyclic")
ABOUT_THE_WIRE = ("genuine", "minimality", "quasi-genuine", "partially-genuine")
CHECKED_IF_CLAIMED = ("timestamps", "fifo", *ABOUT_THE_WIRE, "local-order")
PROPERTIES = ALWAYS_CHECKED + CHECKED_IF_CLAIMED

VIOLATIONS_PER_PROPERTY = 5

CUT_SHORT = "the run did not come to its end: what is missing might still have come"
NO_STAMPS = "they are claimed, but no delivery has one"
NO_WIRE = "the wire was not recorded: nobody can say who spoke to whom"
NOT_KNOWN = "this checker knows no such property"


class Violation(msgspec.Struct, frozen=True):
    """For `prefix` and `acyclic` the lists are a cycle.

    processes[i] delivered messages[i] before messages[i + 1] (or without it), and the last before the first.
    """

    property: str
    messages: list[MessageId]
    processes: list[ProcessId]
    explanation: str


def worst(verdicts: Collection[str]) -> Verdict:
    """Of several: all of them hold, or one fails, or one is not known to hold."""
    if "fail" in verdicts:
        return "fail"
    return "unknown" if "unknown" in verdicts else "pass"


def listing(names: list[str], limit: int = 4) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    if len(names) > limit:
        names = [*names[: limit - 1], f"{len(names) - limit + 1} others"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


class RunReport(msgspec.Struct, frozen=True):
    run_id: str
    path: str
    properties: dict[str, Verdict]
    violations: list[Violation]
    reasons: dict[str, str]  # why a verdict is unknown
    unreadable: str | None = None  # why there is no verdict at all

    @property
    def verdict(self) -> Verdict:
        return worst(self.properties.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "properties": dict(self.properties),
            "violations": [msgspec.to_builtins(violation) for violation in self.violations],
            "reasons": dict(self.reasons),
        }


class Findings:
    """What the checks of one run have found so far."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.reasons: dict[str, str] = {}
        self._violations: dict[str, list[Violation]] = {}

    def begin(self, name: str) -> None:
        """From here on the property holds unless something is found against it."""
        self.verdicts[name] = "pass"

    def unknown(self, name: str, reason: str) -> None:
        self.verdicts[name] = "unknown"
        self.reasons[name] = reason

    def is_full(self, name: str) -> bool:
        return len(self._violations.get(name, ())) >= VIOLATIONS_PER_PROPERTY

    def has_failed(self, name: str) -> bool:
        return self.verdicts.get(name) == "fail"

    def fail(self, name: str, messages: Iterable[int], processes: Iterable[int], explanation: str) -> None:
        self.verdicts[name] = "fail"
        if not self.is_full(name):
            # numpy's integers break JSON: none passes this line.
            found = Violation(name, [int(m) for m in messages], [int(p) for p in processes], explanation)
            self._violations.setdefault(name, []).append(found)

    def violations(self) -> list[Violation]:
        return [found for name in self.verdicts for found in self._violations.get(name, ())]
