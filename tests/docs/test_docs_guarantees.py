"""What docs/guarantees.md names is there: commands with their options, make targets, settings. It is linked."""

from __future__ import annotations

import re
from pathlib import Path

import typer.main
from click import Command

from amcast.cli._app import make_app
from amcast.net.config import ClusterConfig
from amcast.net.disk.records import Durability

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"


def commands() -> dict[str, Command]:
    group = typer.main.get_command(make_app())
    found: dict[str, Command] = getattr(group, "commands", {})
    return found


def test_the_readme_and_the_architecture_link_to_it() -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        assert "](docs/guarantees.md)" in (ROOT / name).read_text(), name


def test_commands_exist_with_the_options_that_are_named() -> None:
    quoted = re.findall(r"`amcast ([a-z]+)([^`]*)`", PAGE.read_text())
    assert {name for name, _ in quoted} >= {"replace", "status", "check"}
    for name, rest in quoted:
        assert name in commands(), f"there is no command `amcast {name}`"
        known = {option for parameter in commands()[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, f"amcast {name}{rest}"


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"`make ([a-z-]+)`", PAGE.read_text())
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"there is no `make {target}`"


def test_the_settings_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    defaults = dict(zip(*_defaults(), strict=True))
    assert f"{defaults['keep_messages'] // 1_000_000} million" in text
    assert defaults["durability"] is Durability.SYNC
    assert "`sync`, when it is on the disk (the default)" in text
    for each in Durability:
        assert f"`{each}`" in text


def _defaults() -> tuple[tuple[str, ...], tuple[object, ...]]:
    fields = ClusterConfig.__struct_fields__
    return fields[-len(ClusterConfig.__struct_defaults__) :], ClusterConfig.__struct_defaults__
