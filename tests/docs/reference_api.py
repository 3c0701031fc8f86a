"""docs/api.md, made of the docstrings of what a program may import."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

import amcast
import amcast.check
import amcast.sim
from amcast.core import AppMessage
from amcast.net.wire.control import Status
from tests.docs.reference_config import fields_of

HEAD = """# API reference

What a program imports, with what each thing says of itself. `help(amcast)` shows the same in a terminal. Names that are
not on this page may change with any version; those on it do so only with a line in [the changes](../CHANGELOG.md).

A payload is `bytes`, a `bytearray` or a `memoryview`. Groups are named as `"g1"`, in one string or in any collection of
strings. Ids of messages and processes are numbers.

This page is made of the docstrings: `pytest tests/docs --rewrite` writes it again.
"""
SIGNATURE_MAX = 75
OTHERS = (AppMessage, Status)  # what the others return, and where it is


class _Plain:
    """Shows an annotation as it is written in the source."""

    def __init__(self, text: object) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return self._text


def signature(function: Any) -> str:
    found = inspect.signature(function)
    parameters = [
        each if each.annotation is each.empty else each.replace(annotation=_Plain(each.annotation))
        for each in found.parameters.values()
        if each.name != "self"
    ]
    returns = found.return_annotation
    shown = found.empty if returns is found.empty else _Plain(returns)
    whole = found.replace(parameters=parameters, return_annotation=shown)
    if len(str(whole)) <= SIGNATURE_MAX:
        return str(whole)
    # A parameter a line. Those after a bare star can only be named.
    first_named = next((each.name for each in parameters if each.kind is each.KEYWORD_ONLY), None)
    lines = [f"    {'*, ' if each.name == first_named else ''}{each}," for each in parameters]
    return "\n".join(["(", *lines, f"){str(whole.replace(parameters=[]))[2:]}"])


def words(thing: Any, name: str) -> str:
    """Its own docstring: one that is inherited, or made by a library, says nothing of it."""
    text = inspect.cleandoc(vars(thing).get("__doc__") or "") if isinstance(thing, type) else inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    return text


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Its own public methods and properties."""
    for name, member in vars(kind).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property | staticmethod)):
            yield name, member


def of_member(kind: type, name: str, member: Any) -> list[str]:
    text = words(member, f"{kind.__name__}.{name}")
    if isinstance(member, property):
        returns = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
        title = f"{name} -> {returns}"
    else:
        function = member.__func__ if isinstance(member, staticmethod) else member
        prefix = "async " if inspect.iscoroutinefunction(function) else ""
        title = f"{prefix}{name}{signature(function)}"
    return ["```python", title, "```", "", text, ""]


def of_class(kind: type) -> list[str]:
    lines = [words(kind, kind.__name__), ""]
    parents = [each.__name__ for each in kind.__mro__[1:] if each.__module__.startswith("amcast.")]
    if parents and not issubclass(kind, Exception):
        lines += [f"It also has all of `{parents[0]}`.", ""]
    elif parents:
        lines += [f"A `{parents[0]}`.", ""]
    if issubclass(kind, msgspec.Struct):
        lines += ["| field | type | |", "|---|---|---|"]
        for name, annotation, comment in fields_of(kind):
            shown = annotation.replace("|", "\\|")
            lines.append(f"| `{name}` | `{shown}` | {comment[:1].upper()}{comment[1:]} |")
        lines.append("")
    elif not issubclass(kind, Exception) and "__init__" in vars(kind) and kind.__name__.startswith(("Sim", "Stage")):
        lines += ["```python", f"{kind.__name__}{signature(kind.__init__).removesuffix(' -> None')}", "```", ""]
    for name, member in members(kind):
        lines += of_member(kind, name, member)
    return lines


def of(module: Any, name: str) -> list[str]:
    thing = getattr(module, name)
    lines = [f"### `{name}`", ""]
    if isinstance(thing, type):
        return [*lines, *of_class(thing)]
    if callable(thing) and not get_args(thing):
        return [*lines, "```python", f"{name}{signature(thing)}", "```", "", words(thing, name), ""]
    values = get_args(thing) or tuple(thing)
    return [*lines, f"These are {', '.join(f'`{each}`' for each in values)}.", ""]


def rank(thing: Any) -> int:
    """First what is called, then classes, errors last."""
    if not isinstance(thing, type):
        return 0 if callable(thing) else 1
    return 3 if issubclass(thing, Exception) else 2


def make_page() -> str:
    lines = [HEAD]
    for module in (amcast, amcast.sim, amcast.check):
        first = inspect.cleandoc(module.__doc__ or "").partition("\n")[0]
        lines += [f"## {module.__name__}", "", first, ""]
        names = [name for name in module.__all__ if not name.startswith("_")]
        for name in sorted(names, key=lambda each: (rank(getattr(module, each)), each)):
            lines += of(module, name)
    lines += ["## What they return", ""]
    for kind in OTHERS:
        lines += [f"### `{kind.__name__}`", "", *of_class(kind)]
    return "\n".join(lines).rstrip() + "\n"
