"""Python and shell blocks of all pages are run as they are written, but for those that say why they are not.

A block is left out by a comment before it: `<!-- not run: it needs root -->`. Pages with a test of their own are left
out here: the README, whose `amcast` lines are run one by one, and those whose blocks need a cluster around them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amcast.net.local import free_ports
from tests.docs.docs_pages import PAGES, ROOT, Block, blocks

OWN_TESTS = {
    "README.md",
    "docs/applications.md",
    "docs/driver.md",
    "docs/linearizability.md",
    "docs/trace-format.md",
    "docs/tutorial.md",
    "examples/market/README.md",
    "examples/social/README.md",
}
SIGNATURES = {"docs/api.md"}  # what is in its blocks can't be run
# Where blocks do not follow each other: what each of them finds in its folder.
BEFORE_EACH = {
    "security.md": """
        amcast certs certs --cluster shop --groups 2 --client alice
        amcast token add alice --send g1 --out alice.token --file tokens.toml
    """
}
TIMEOUT_S = 300


def run_of(page: Path, *languages: str) -> list[Block]:
    if page.relative_to(ROOT).as_posix() in OWN_TESTS | SIGNATURES:
        return []
    return [block for block in blocks(page, *languages) if block.reason is None]


WITH_PYTHON = [page for page in PAGES if run_of(page, "python")]
WITH_SHELL = [page for page in PAGES if run_of(page, "sh")]


def test_there_are_snippets_on_many_pages() -> None:
    assert {page.name for page in WITH_PYTHON} >= {"protocols.md"}
    assert {page.name for page in WITH_SHELL} >= {"operations.md", "security.md"}


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as one program."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(run_of(page, "python")):
        exec(compile(block.text, f"{page.name}, Python block {number}", "exec", dont_inherit=True), names)


@pytest.mark.parametrize("page", WITH_SHELL, ids=lambda page: page.name)
def test_shell_blocks_run(page: Path, tmp_path: Path) -> None:
    """One after the other in one folder; or each in a folder that has what it needs."""
    texts = [block.text for block in run_of(page, "sh")]
    if page.name not in BEFORE_EACH:
        texts = ["\n".join(texts)]
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        run_shell(BEFORE_EACH.get(page.name, "") + with_free_ports(text), folder)


def with_free_ports(text: str) -> str:
    """Other programs may have those that are written on the page."""
    written = sorted({*re.findall(r"127\.0\.0\.1:(\d+)", text), *re.findall(r"^metrics = (\d+)$", text, re.MULTILINE)})
    for port, free in zip(written, free_ports(len(written)) if written else (), strict=True):
        text = re.sub(rf"\b{port}\b", str(free), text)
    return text


def run_shell(text: str, folder: Path) -> None:
    """In a session of its own, so that nothing of it is left."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with (folder / "output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env={**os.environ, "PATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(TIMEOUT_S)
        finally:
            if left := is_left(shell.pid):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        assert code == 0, output.read()
        assert not left, "the page starts something that it does not stop"


def is_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_block_that_fails_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no such command"):
        run_shell("echo 'no such command'; false; true", tmp_path)
    with pytest.raises(AssertionError, match="does not stop"):
        run_shell("sleep 100 &", tmp_path)


def test_every_example_is_in_a_test() -> None:
    """By its name: what a test does with it is the test's affair."""
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    examples = [path.name for path in (ROOT / "examples").iterdir() if path.is_dir()]
    assert {"bank", "chain_protocol", "deploy"} <= set(examples)
    for name in examples:
        names = (f'"examples" / "{name}"', f'load_example("{name}")')
        assert any(each in sources for each in names), f"no test runs examples/{name}"
