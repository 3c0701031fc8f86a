"""The pages that are made of the code are up to date. `pytest tests/docs --rewrite` writes them again."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import amcast
from amcast.net.config import ClientLimits, ClusterConfig, Limits, ProcessConfig, TlsFiles
from tests.docs import reference_api, reference_config

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "make"),
    [("configuration.md", reference_config.make_page), ("api.md", reference_api.make_page)],
)
def test_the_page_is_up_to_date(name: str, make: Callable[[], str], request: pytest.FixtureRequest) -> None:
    content = make()
    if request.config.getoption("--rewrite"):
        (DOCS / name).write_text(content)
    assert (DOCS / name).read_text() == content, f"docs/{name} is out of date: pytest tests/docs --rewrite"


def test_the_configuration_of_the_page_is_one() -> None:
    text = (DOCS / "configuration.md").read_text().split("```toml\n")[1].split("```")[0]
    config = msgspec.convert(tomllib.loads(text), ClusterConfig)
    config.check()
    assert len(config.process) == 3


def test_every_setting_is_on_the_page() -> None:
    text = (DOCS / "configuration.md").read_text()
    for struct in (ClusterConfig, ProcessConfig, TlsFiles, Limits, ClientLimits):
        for name in struct.__struct_fields__:
            assert name in reference_config.NOT_WRITTEN or f"| `{name}` |" in text, name


def test_help_lists_every_name_with_a_line() -> None:
    shown = pydoc.plain(pydoc.render_doc(amcast))
    description = shown.split("PACKAGE CONTENTS")[0]
    for name in amcast.__all__:
        if not name.startswith("_"):
            assert re.search(rf"^ *{name}  +\w.{{10,}}$", description, re.MULTILINE), name
    assert "connect_sync(where" in shown.split("FUNCTIONS")[1]


def test_the_network_is_not_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, amcast; print(any(name.startswith('amcast.net') for name in sys.modules), amcast.connect.__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False connect\n"
