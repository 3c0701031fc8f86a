"""The format of a run in words, made from the schema: for `amcast schema`, and docs/trace-format.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..parquet.column import Column
from .operations import VERBS, Verb
from .schema import EXAMPLE, FIELDS, FORMAT, PROPERTIES, DescribedColumn, Property, Table, encode_run_info


def schema_document() -> dict[str, Any]:
    return {
        "tables": {
            table.name: {
                "meaning": table.meaning,
                "optional": table.is_optional,
                "columns": [_column(column) for column in table.columns],
            }
            for table in FORMAT
        },
        "operations": {
            name: {
                "object": verb.kind,
                "arguments": list(verb.arguments),
                "result": _told(verb),
                "meaning": verb.meaning,
            }
            for name, verb in VERBS.items()
        },
        "properties": {each.name: {"judged": _judged(each), "meaning": each.meaning} for each in PROPERTIES},
        "run.json": {"fields": dict(FIELDS), "example": EXAMPLE_DOCUMENT},
    }


def _column(column: DescribedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": type_name(column),
        "nullable": column.nullable,
        "meaning": column.meaning,
        "in_imports": {
            "takes_names": column.names is not None,
            "also_called": column.also or None,
            "if_absent": "refused" if column.absent is None else column.absent,
            "may_be_blank": column.may_be_blank,
        },
    }


def type_name(column: Column) -> str:
    return f"list of {column.type}" if column.is_list else column.type


def _judged(each: Property) -> str:
    if each.is_always_judged:
        return "always"
    if each.about_operations:
        return "if claimed, or if there are operations"
    return "if claimed, by the wire" if each.needs_wire else "if claimed"


def _by_field() -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(encode_run_info(EXAMPLE))
    return {name: decoded[name] for name in (*FIELDS, *EXAMPLE.extra) if name in decoded}


EXAMPLE_DOCUMENT = _by_field()


def example_text() -> str:
    """`run.json` by example, a line for each field."""
    fields = [f'  "{name}": {msgspec.json.encode(value).decode()}' for name, value in EXAMPLE_DOCUMENT.items()]
    return "{\n" + ",\n".join(fields) + "\n}"


# ------------------------------------------------------------------------------------------ docs/trace-format.md

_HEAD = """# The format of a run

A run is a folder: `run.json`, and for each table a folder of Parquet files, such as `deliveries/part-0.parquet`. Any
program can write one, and `amcast check` judges it, whoever wrote it. `amcast schema` prints this format too, and
`amcast schema --json` for programs. Whoever has CSV or JSON lines uses [`amcast import`](#import-csv-or-json-lines).

Files of a table may have any names that end in `.parquet`; those that start with `.` or `_` are passed over. Column
types must be exactly these; the order of columns and the order of rows don't matter (positions say what came before
what).

This page is made from the schema: `pytest tests/docs --rewrite` writes it again.
"""

_RUN = """
## `run.json`

Processes, groups and messages are numbers. Groups are numbered from 1 by custom; a process in no group is a client.
Other fields than these are kept as they are.
"""

_VERBS = """
## What is done with objects

An object of `operations` is a register, a counter, a set or a list: what is done with it says which, and it stays that.
Values are any JSON. A key of a store is a register. [Linearizability](linearizability.md) shows it by an example.
"""

_TRANSACTION = """
A `transaction` does several of these at one moment: its arguments are steps, each with its object, as
`[["get", "x"], ["put", "y", 5]]`, and its result is a list of their results, as `[4, null]`. A result of something that
tells nothing may be anything.
"""

_IMPORT = """
## Import CSV or JSON lines

`amcast import FILE... --out RUN` makes a run of files `.csv` (also `.tsv`) and `.jsonl`, one or more for each table.
It needs `pip install 'amcast[spark]'`; `amcast check`, which judges the run, does not. A file is recognised by its
name (`deliveries.csv`, `deliveries-db7.jsonl`), or by `--table deliveries=log.csv`; a folder stands for all such files
in it. In CSV the first line names the columns; they may also be separated by tabs or semicolons. The columns are those
above, with these liberties:
"""

_LIBERTIES = """
- **Names.** Groups, processes, clients and messages may have any names: `orders`, `db-7`, `tx-123`. They are
  numbered, always the same way, and the verdict speaks their names; integers stay what they are. In `run.json` are
  the names of groups and processes, in the tables `names/clients` and `names/messages` (`id`, `name`) all others.
- **Destinations** are names with spaces, commas, semicolons or bars between them (`orders stock`), or a JSON list.
- **Times** are integers in microseconds, or what `--time-unit` says: `ms` and `s` (decimals are fine), `ns`, `iso`
  (as `2026-11-17T12:30:00.000123Z`). What is finer than a microsecond is cut off.
- **Positions** may count from another number than 0: `--first-position 1`. If they have gaps, leave them out: the
  order of rows counts then.
- **Objects** are names as destinations are. **Arguments and results** are JSON, and what is none is a word: `alice`.
  A single argument needs no list around it: `5`. A blank result was not recorded; nothing that was read is `null`.
- **Kinds** of deliveries are `final` and `optimistic`, or 0 and 1.
- **Your own names of columns**: `--column msg=tx_id`, or `--column deliveries.msg=tx_id` for one table. Columns that
  nobody needs are ignored, and named.

Nothing is rounded: an integer that does not fit is refused, and so is everything else that is wrong, all at once,
with file, line and column; nothing is written then. No value has a line end in it, and no line is longer than a
megabyte.

What the files can't say you declare, by options or in a file for `--info` (or `run.json` in the folder of the files)
that has any of these fields:

```json
%s
```

A verdict is never better than its evidence:

- without `--complete`, what is missing might still have come: validity and agreement are unknown;
- without `--group`, the processes are those that delivered something, and one that should have and did not is not
  seen: then validity, agreement and replicas don't pass;
- without multicasts, what was to be delivered is not known: integrity, validity, agreement, prefix and acyclic order
  don't pass, but fail if what was delivered breaks them;
- without senders, a message that was lost makes validity unknown, since a sender that crashed owes nothing;
- without the results of operations that were answered, linearizability does not pass. Operations alone will do: nothing
  else is judged then.

Who is correct follows from `faults` unless `--correct` says it: all processes that did not crash for good.

For files that no memory holds, `--engine spark` does the same.
"""

_ABOUT = {
    "protocol": "orders-db",
    "complete": True,
    "groups": {"orders": ["db-1", "db-2"], "stock": ["db-3", "db-4"]},
    "correct": ["db-1", "db-2", "db-3", "db-4"],
    "claims": ["fifo"],
}

_EXAMPLE = """
## An example, from CSV to verdict

Two groups of two processes, and three messages of two clients. Two files in the folder `trace`, `multicasts.csv`

```csv trace/multicasts.csv
msg,sender,client_seq,dst,t_us
tx-1,alice,0,orders stock,1000
tx-2,bob,0,orders stock,1100
tx-3,alice,1,stock,1200
```

and `deliveries.csv`, here without times:

```csv trace/deliveries.csv
process,pos,msg
db-1,0,tx-1
db-1,1,tx-2
db-2,0,tx-1
db-2,1,tx-2
db-3,0,tx-1
db-3,1,tx-2
db-3,2,tx-3
db-4,0,tx-1
db-4,1,tx-2
db-4,2,tx-3
```

Which processes there are, that the run came to its end, and that it promises FIFO order, is for you to say:

```sh
amcast import trace --group orders=db-1,db-2 --group stock=db-3,db-4 --complete --claims fifo --out runs/good
amcast check runs/good
```

```text
runs/good  good: pass
property   verdict
positions  pass
integrity  pass
validity   pass
agreement  pass
replicas   pass
prefix     pass
acyclic    pass
fifo       pass
```

Had both processes of `stock` delivered tx-2 first, as in

```csv swapped/deliveries.csv
process,pos,msg
db-1,0,tx-1
db-1,1,tx-2
db-2,0,tx-1
db-2,1,tx-2
db-3,0,tx-2
db-3,1,tx-1
db-3,2,tx-3
db-4,0,tx-2
db-4,1,tx-1
db-4,2,tx-3
```

the deliveries alone would show it:

```sh
amcast import swapped --group orders=db-1,db-2 --group stock=db-3,db-4 --complete --out runs/bad
amcast check runs/bad
```

```text
prefix: db-1 delivered tx-1 before tx-2; db-3 delivered tx-2 before tx-1
```
"""


def schema_page() -> str:
    """docs/trace-format.md."""
    parts = [_HEAD, *(_table_section(table) for table in FORMAT), _verbs_section(), _properties_section(), _RUN]
    parts.append(_markdown_table(("field", "meaning"), [(f"`{name}`", meaning) for name, meaning in FIELDS.items()]))
    parts += [f"\n```json\n{example_text()}\n```\n", _IMPORT, _imports_section()]
    about = msgspec.json.format(msgspec.json.encode(_ABOUT), indent=2).decode()
    return "".join([*parts, _LIBERTIES % about, _EXAMPLE])


def _table_section(table: Table) -> str:
    optional = " It may be left out." if table.is_optional else ""
    rows = [
        (f"`{each.name}`", type_name(each), "yes" if each.nullable else "no", each.meaning) for each in table.columns
    ]
    return f"\n## `{table.name}`\n\n{table.meaning}{optional}\n" + _markdown_table(
        ("column", "type", "null", "meaning"), rows
    )


def _verbs_section() -> str:
    rows = [
        (f"`{name}`", verb.kind, ", ".join(verb.arguments) or "none", _told(verb), verb.meaning)
        for name, verb in VERBS.items()
    ]
    header = ("operation", "object", "arguments", "result", "meaning")
    return _VERBS + _markdown_table(header, rows) + _TRANSACTION


def _told(verb: Verb) -> str:
    match verb.tells:
        case "nothing":
            return "tells nothing"
        case "outcome":
            return f"{verb.result}, or null"
        case "state":
            return "value" if verb.result == "anything" else verb.result


def _properties_section() -> str:
    rows = [(f"`{each.name}`", _judged(each), each.meaning) for each in PROPERTIES]
    text = "A run is judged by these; `claims` in `run.json` has the names of what is promised."
    return f"\n## Properties and claims\n\n{text}\n" + _markdown_table(("property", "judged", "meaning"), rows)


def _imports_section() -> str:
    rows = [
        (
            table.name,
            f"`{column.name}`" + (f", `{column.also}`" if column.also else ""),
            "name or number" if column.names else "",
            "it is refused" if column.absent is None else column.absent,
        )
        for table in FORMAT
        for column in table.columns
    ]
    return _markdown_table(("table", "column", "takes", "if a file does not have it"), rows)


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
