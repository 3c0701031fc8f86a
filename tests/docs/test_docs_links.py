"""Links between pages lead to files and headings that are there, and every page can be found from the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.docs_pages import PAGES, ROOT, anchors, links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        assert target.is_relative_to(ROOT), f"{page.name} links to {path}, outside of the project"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {path}#{anchor}: there is no such heading"


def test_every_page_is_in_the_index() -> None:
    """The site's navigation is made of it."""
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / path).resolve() for path, _ in links(index)}
    pages = {page for page in PAGES if not page.is_relative_to(ROOT / "examples")}
    assert pages - linked == {index}


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`: three\n## Same\n## Same\n[a](other.md#b) `[c](d)` ![e](f.svg)\n```\n# no heading\n[g](h)\n```\n"
        "[i](https://example.org/j) [k](#same-1)\n"
    )
    assert list(links(page)) == [("other.md", "b"), ("f.svg", ""), ("", "same-1")]
    assert anchors(page) == {"one-two-three", "same", "same-1"}
