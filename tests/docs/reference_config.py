"""docs/configuration.md, made of the structs behind cluster.toml: types, defaults, and the comments of their fields."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from amcast.core.message import PAYLOAD_LIMIT
from amcast.net.config import (
    PROCESSES_MAX,
    ClientLimits,
    ClusterConfig,
    Limits,
    ProcessConfig,
    TlsFiles,
    replica_config,
)
from amcast.net.disk.records import Durability
from amcast.protocols import PROTOCOLS, ReplicaConfig

NOT_WRITTEN = {"folder", "name"}  # of ClusterConfig: they are where the file is
TYPES = {
    "str": "text",
    "str | None": "text",
    "bool": "true or false",
    "int": "number",
    "float": "fraction",
    "Count": "number, at least 1",
    "CountOrNone": "number, at least 0",
    "BytesOrAll": "bytes, at least 0",
    "SecondsOrAll": "seconds, at least 0",
    "Bytes": "bytes, at least 1",
    "PayloadBytes": f"bytes, 1 to {PAYLOAD_LIMIT >> 20} MiB",
    "Milliseconds": "milliseconds, at least 1",
    "Port": "port, 0 to 65535",
    "Durability": ", ".join(f"`{each}`" for each in Durability),
    "dict[str, Any]": "table",
    "dict[str, tuple[str, ...]]": "table of lists",
    "Limits": "table",
    "ClientLimits": "table",
    "PaxosConfig": "table",
    "TlsFiles | None": "table",
    "tuple[ProcessConfig, ...]": f"tables, 1 to {PROCESSES_MAX:,}",
    "tuple[GroupId, ...]": "list of group numbers",
    "tuple[str, ...]": "list of texts",
}

HEAD = """# Configuration

A cluster is described by one file, `cluster.toml`, which is the same on all its machines. `amcast up` writes one for a
cluster on this machine. For one on many machines, write it by hand, and let `amcast config check cluster.toml` look at
it before anything starts. `amcast config show cluster.toml` prints it with all defaults.

```toml
cluster = "shop"
id = "5f1c9a0b7d3e2468"        # any text that no other cluster has; say it once and never change it
protocol = "fastcast"
data = "/var/lib/amcast"

[tls]
folder = "/etc/amcast/certs"

[[process]]
id = "g1.p0"
address = "10.0.0.1:7101"

[[process]]
id = "g1.p1"
address = "10.0.0.2:7101"

[[process]]
id = "g1.p2"
address = "10.0.0.3:7101"
```

Names of settings that do not exist are refused, and so are values of a wrong type or outside of their range.

**What may change later.** Data on disk depends on `protocol`, the members of groups, `epoch_s` and the protocol's own
options, but for those of GeoPaxos's placement: a process that finds other ones than its data was written under refuses
to start. All else may change: write the new file on all machines, and restart the processes one after the other.
Certificates and tokens are read again while nodes run ([Security](security.md)).

This page is made of the program's own description of the file: `pytest tests/docs --rewrite` writes it again.
"""


class Field(NamedTuple):
    name: str
    annotation: str
    comment: str


UNITS = {"_us": "microseconds", "_bytes": "bytes", "_s": "seconds, Unix time"}  # of plain numbers, by their names


def all_fields_of(struct: type[msgspec.Struct]) -> list[Field]:
    """Also those of the protocols' configurations that it extends; not those which all of them have."""
    structs = [each for each in reversed(struct.__mro__) if each.__module__.startswith("amcast.")]
    if struct is not ReplicaConfig and issubclass(struct, ReplicaConfig):
        structs = structs[structs.index(ReplicaConfig) + 1 :]
    return [field for each in structs for field in fields_of(each)]


def fields_of(struct: type) -> Iterator[Field]:
    """The fields that a struct adds itself, each with the comment that follows it or stands above it."""
    lines = inspect.getsource(struct).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("ClassVar"):
            assert isinstance(node.target, ast.Name)
            yield Field(node.target.id, ast.unparse(node.annotation), _comment(lines, node.lineno - 1))


def _comment(lines: list[str], at: int) -> str:
    above = at
    while lines[above - 1].strip().startswith("#"):
        above -= 1
    parts = [line.strip() for line in lines[above:at]]
    if "  # " in lines[at]:
        parts.append(lines[at].split("  # ", 1)[1])
    return " ".join(part.lstrip("# ") for part in parts)


def type_of(name: str, annotation: str) -> str:
    unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
    return unit if unit and annotation == "int" else TYPES[annotation]


def shown(value: Any, name: str) -> str:
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value in ("", {}, ()) or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        is_size = name.endswith("_bytes") and value % (1 << 20) == 0
        return f"{value >> 20:,} MiB" if is_size else f"{value:,}"
    return f"`{value}`"


def table(struct: type[msgspec.Struct], defaults: msgspec.Struct | None = None) -> list[str]:
    """`defaults`: an object whose values are the defaults, if they are not those of the struct."""
    known = {field.name: field for field in msgspec.structs.fields(struct)}
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, annotation, comment in all_fields_of(struct):
        if name in NOT_WRITTEN and struct is ClusterConfig:
            continue
        assert comment, f"{struct.__name__}.{name} has no comment that says what it is"
        value = known[name].default if defaults is None else getattr(defaults, name)
        if value is msgspec.NODEFAULT and known[name].default_factory is not msgspec.NODEFAULT:
            value = ""
        meaning = comment[0].upper() + comment[1:]
        rows.append(f"| `{name}` | {type_of(name, annotation)} | {shown(value, name)} | {meaning.rstrip('.')} |")
    return rows


def section(title: str, struct: type[msgspec.Struct], *more: str) -> str:
    words = re.sub(r"\s+", " ", inspect.cleandoc(struct.__doc__ or ""))
    return "\n".join(["", f"## {title}", "", words, "", *table(struct), *more, ""])


def options() -> str:
    """The tables of options: what all protocols have, and what each adds."""
    lines = [
        "",
        "## `[options]`",
        "",
        'Of the protocol. All of them have these; defaults are those of a real cluster with `network = "none"`, and'
        " times grow with the longest round trip of another `network`.",
        "",
        *table(ReplicaConfig, replica_config("fastcast", "none", {})),
        "",
        "### `[options.paxos]`",
        "",
        "Of the replicated log inside each group. A table here stands for all of them: a setting that it leaves out has"
        " the last column's value, and not the default.",
        "",
    ]
    made = replica_config("fastcast", "none", {}).paxos
    plain = type(made)()
    rows = table(type(made), made)
    lines += [rows[0] + " left out |", rows[1] + "---|"]
    names = [field.name for field in fields_of(type(made))]
    lines += [f"{row} {shown(getattr(plain, name), name)} |" for name, row in zip(names, rows[2:], strict=True)]
    lines.append("")
    for spec in PROTOCOLS.values():
        if spec.config is not ReplicaConfig:
            lines += [f"### Of `{spec.name}`", "", *table(spec.config), ""]
    return "\n".join(lines)


def make_page() -> str:
    more = "[Budgets](security-budgets.md) says what those for clients and strangers defend against."
    parts = [
        HEAD,
        section("The cluster", ClusterConfig),
        section("`[[process]]`", ProcessConfig),
        section("`[tls]`", TlsFiles),
        section("`[limits]`", Limits, "", more),
        section("`[limits.client]`", ClientLimits),
        options(),
    ]
    return "".join(parts)
