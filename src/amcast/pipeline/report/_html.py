"""Pieces of HTML: tables, badges, embedded figures. Text from a run is escaped here; the page loads nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pyarrow as pa

Cell = tuple[str, str]  # HTML, and its CSS class: "num" or ""

_WORDS = {
    "grp": "group",
    "nth": "destination",
    "per_second": "messages / s",
    "messages_per_delivered": "messages / delivered",
    "bytes_per_delivered": "bytes / delivered",
    "run_id": "run",
    "own": "own messages",
}
_SHARES = ("ratio", "overhead")


def text(value: object) -> str:
    return escape(str(value), quote=True)


def badge(verdict: str) -> str:
    signs = {"pass": "✓", "fail": "✗", "unknown": "?"}
    return f'<span class="badge {text(verdict)}">{signs.get(verdict, "")} {text(verdict)}</span>'


def table(header: Sequence[str], rows: Iterable[Sequence[str | Cell]], numeric: Sequence[bool] = ()) -> str:
    """`header` is plain text; cells are HTML already."""
    flags = list(numeric) or [False] * len(header)
    head = "".join(
        f"<th{_class('num' if flag else '')}>{text(name)}</th>" for name, flag in zip(header, flags, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: str | Cell) -> str:
    shown, kind = cell if isinstance(cell, tuple) else (cell, "")
    return f"<td{_class(kind)}>{shown}</td>"


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def data_table(data: pa.Table, hidden: Sequence[str] = (), rows_max: int = 60) -> str:
    """The table of a metric: times in milliseconds, shares in percent, numbers aligned to the right."""
    names = [name for name in data.column_names if name not in hidden]
    numeric = [_is_number(data.schema.field(name).type) for name in names]
    rows = data.slice(0, rows_max).to_pylist()
    cells = [[_value(name, row[name], flag) for name, flag in zip(names, numeric, strict=True)] for row in rows]
    return table([heading(name) for name in names], cells, numeric)


def heading(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name]
    if name.endswith("_us"):
        return f"{name[:-3].replace('_', ' ')} (ms)"
    return name.replace("_", " ") + (" (%)" if name in _SHARES else "")


def _is_number(kind: pa.DataType) -> bool:
    return not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind))


def _value(name: str, value: Any, is_number: bool) -> Cell:
    if value is None:
        return "–", "num" if is_number else ""
    if isinstance(value, bool):
        return ("yes" if value else "no"), ""
    if not is_number:
        return text(value), ""
    if name.endswith("_us"):
        return number(value / 1000), "num"
    return number(value * 100 if name in _SHARES else value), "num"


def number(value: float) -> str:
    """Whole numbers as they are, others to about four digits."""
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{value:,.{digits}f}"


# ------------------------------------------------------------------------------------------------- pictures

_PROLOGUE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)
_NAMESPACE = re.compile(r'\sxmlns(?::\w+)?="[^"]*"')
_STYLE = re.compile(r"(<style[^>]*>)(.*?)(</style>)", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{")


def embed_svg(svg: str, name: str, label: str) -> str:
    """An SVG document as a part of the page. Its ids and its style sheet get a prefix, so that figures do not clash."""
    body = _NAMESPACE.sub("", _PROLOGUE.sub("", svg)).strip()
    body = body.replace('xlink:href="#', 'href="#')
    body = re.sub(r'(\sid="|href="#|url\(#)', lambda found: f"{found[1]}{name}-", body)
    body = _STYLE.sub(lambda found: found[1] + _scoped(found[2], name) + found[3], body)
    return f'<figure id="{name}" role="group" aria-label="{text(label)}">{body}</figure>'


def _scoped(rules: str, name: str) -> str:
    """Limits each rule to what is inside the element `name`."""

    def prefixed(found: re.Match[str]) -> str:
        return ", ".join(f"#{name} {part.strip()}" for part in found[1].split(",")) + " {"

    return _RULE.sub(prefixed, rules)
