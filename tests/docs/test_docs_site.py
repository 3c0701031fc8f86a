"""The site is built without a warning, has every page, can be searched, and fetches nothing from elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.docs.docs_pages import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return folder


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    names = {page.stem for page in (ROOT / "docs").glob("*.md")} | {"readme", "architecture", "contributing"}
    assert {f"{name}.html" for name in names} <= found
    home = (site / "index.html").read_text()
    for name in names:
        assert f'href="{name}.html"' in home, name


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.findall(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//[^"]*"', text), page.name
        links = re.findall(r'<link[^>]+href="(?:https?:)?//[^"]*"', text)
        assert not links, page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text()), style.name


def test_links_to_files_beside_the_pages_are_bent(site: Path) -> None:
    text = (site / "operations.html").read_text()
    for name in re.findall(r"examples/deploy/[\w.@-]+", (ROOT / "docs" / "operations.md").read_text()):
        place = name.replace("README.md", "index.html")
        assert f'href="{quote(place)}"' in text, name
        assert (site / place).is_file(), name
