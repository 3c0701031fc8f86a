"""The pages of the documentation, and what tests want of them: code blocks, links, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/*.md"))]

_FENCE = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    language: str
    text: str
    reason: str | None  # why it is not run


def blocks(page: Path, *languages: str) -> list[Block]:
    found = [Block(match[2], match[3], match[1]) for match in _FENCE.finditer(page.read_text())]
    return [block for block in found if not languages or block.language in languages]


def prose(page: Path) -> str:
    """Without code, in which brackets are no links and hashes no headings."""
    return re.sub(
        r"`[^`\n]*`", lambda code: code[0].replace("[", "").replace("]", ""), _FENCE.sub("", page.read_text())
    )


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Files, as they are written, and anchors; those that lead to other sites are left out."""
    for target in _LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """Of its headings, as code-hosting sites make them: no punctuation, hyphens for spaces, numbers for repeats."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)
