"""What docs/security.md names is there: the tests that show each threat, commands and options, settings, events."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import typer.main

from amcast.cli._app import make_app
from amcast.net.config import ClientLimits, ClusterConfig, Limits
from amcast.net.node import _audit, _credential_watch, _fairness
from amcast.net.security.access import TICKET_LIFE_S
from amcast.net.security.identity import parse_uri

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "security.md"
TEST = re.compile(r"`(tests/[a-z_/]+\.py)::([a-z0-9_]+)`")


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def threats() -> list[str]:
    rows = PAGE.read_text().split("\n## Threats\n")[1].split("\n## ")[0].strip().splitlines()
    return rows[2:]


def test_every_threat_names_a_test_and_every_test_is_there() -> None:
    assert len(threats()) > 15
    for row in threats():
        assert TEST.search(row.rsplit("|", 2)[1]), f"no test shows: {row}"
    for path, name in TEST.findall(PAGE.read_text()):
        assert name in names_in(ROOT / path), f"there is no {path}::{name}"


def command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and the words after it."""
    found, rest = typer.main.get_command(make_app()), list(words)
    while rest and rest[0] in getattr(found, "commands", {}):
        found = found.commands[rest.pop(0)]  # type: ignore[attr-defined]
    return found, rest


def test_commands_exist_with_the_options_that_are_named() -> None:
    text = PAGE.read_text()
    lines = re.findall(r"`amcast ([^`]+)`", text) + re.findall(r"^amcast (.*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        found, _ = command(line.split())
        assert not hasattr(found, "commands"), f"there is no `amcast {line}`"
        known = {option for parameter in found.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", line)) <= known, f"amcast {line}"


def test_figures_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    assert TICKET_LIFE_S == 86_400
    assert "It ends after a day" in text
    assert f"renamed at {_audit.FILE_BYTES >> 20} MB and five are kept" in text
    assert _audit.FILES == 5
    assert f"the last {_credential_watch.WARN_S // 86_400} days" in text
    assert 1 / _credential_watch.LOOK_S == 4
    assert "four times a second" in text
    assert "insecure" in ClusterConfig.__struct_fields__
    for uri in re.findall(r"`(amcast://[^`]+)`", text):
        assert parse_uri(uri) is not None, uri


def test_budgets_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "security-budgets.md").read_text()
    limits, own = Limits(), ClientLimits()
    for row, messages, size in (
        ("`open_messages`, `open_bytes`", limits.open_messages, limits.open_bytes),
        ("`forwarded_messages`, `forwarded_bytes`", limits.forwarded_messages, limits.forwarded_bytes),
        ("`ingress_messages`, `ingress_bytes`", limits.ingress_messages, limits.ingress_bytes),
        ("`open_messages`, `open_bytes`", own.open_messages, own.open_bytes),
    ):
        assert f"| {row} | {messages:,}, {size >> 20} MiB |" in text
    for row, count in (("connections", limits.connections), ("strangers", limits.strangers)):
        assert f"| `{row}` | {count:,} |" in text
    for row, count in (("sessions", own.sessions), ("followers", own.followers)):
        assert f"| `{row}` | {count:,} |" in text
    assert f"as little as {_fairness.MESSAGES_MIN} messages\nand {_fairness.BYTES_MIN >> 10} KiB" in text


def test_other_pages_link_to_it() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "docs/guarantees.md"):
        assert "security.md)" in (ROOT / name).read_text(), name
