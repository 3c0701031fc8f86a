"""Hooks of the site's builder (mkdocs.yml): pages are written once, and read well on a code-hosting site as well.

- The navigation is docs/index.md: its headings are the sections, and its links are the pages.
- README.md and its neighbours, and the files in examples/, are outside docs/, where the builder does not look. They
  are put into the site here, and links to them are bent.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
ROOT_PAGES = {"README.md": "readme.md"} | {
    name: name.lower() for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
}
_LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?\)")


def place_in_site(path: str) -> str:
    """Where a file of the repository is in the site: docs/driver.md becomes driver.md."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if (ROOT / path).is_dir():
        return posixpath.join(path, "README.md")
    return path.removeprefix("docs/")


def path_in_repository(src_uri: str) -> str:
    """The other way round."""
    for path, place in ROOT_PAGES.items():
        if src_uri == place:
            return path
    return src_uri if (ROOT / src_uri).is_file() else f"docs/{src_uri}"


def bend_links(markdown: str, path: str) -> str:
    """Relative links of a file of the repository, as they lead to the same in the site."""
    folder, here = posixpath.dirname(path), posixpath.dirname(place_in_site(path))

    def bent(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return f"{match[1]}{posixpath.relpath(place_in_site(target), here or '.')}{match[3] or ''})"

    return _LINK.sub(bent, markdown)


def navigation(index: str) -> list[Any]:
    """Sections and their pages, from the headings and links of docs/index.md."""
    sections: list[Any] = [{"Home": "index.md"}]
    for part in index.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        pages = re.findall(r"^- \[([^\]]+)\]\(([^)#:\s]+\.md)\)", text, re.MULTILINE)
        entries = [{name: place_in_site(posixpath.normpath(f"docs/{target}"))} for name, target in pages]
        if entries:
            sections.append({title.strip(): entries})
    return sections


# -- called by the builder


def on_config(config: Any) -> Any:
    config.nav = navigation((ROOT / "docs" / "index.md").read_text())
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for each in (ROOT / "LICENSE", *sorted((ROOT / "examples").rglob("*"))):
        if each.is_file() and "__pycache__" not in each.parts:
            files.append(File.generated(config, each.relative_to(ROOT).as_posix(), abs_src_path=str(each)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    return bend_links(markdown, path_in_repository(page.file.src_uri))
