"""A violation as a picture: `space_time_svg` for a page, `space_time_text` for a terminal."""

from __future__ import annotations

from ._svg import space_time_svg
from ._text import space_time_text

__all__ = ["space_time_svg", "space_time_text"]
