"""The HTML page of a report: verdicts and their evidence first, then figures and tables, then configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...check import Violation, worst
from ...trace.latency import AT, FIRST_REPLICA, UNTIL
from ...trace.schema import encode_run_info
from ..checks import RunReport
from ..figures import Picture
from ..files import RunFiles, names_of
from ..ingest import Quarantined
from ..metrics import METRICS
from ._html import Cell, badge, data_table, embed_svg, number, table, text
from ._style import STYLE

_ROWS_MAX = 60
_NOT_SHOWN = frozenset({"latency_cdf", "latency_over_time", "throughput_over_time"})  # shown as figures
_EXPLAINED_MAX = 10


@dataclass(frozen=True, slots=True)
class Content:
    runs: Sequence[RunFiles]
    reports: Sequence[RunReport]
    tables: Mapping[str, pa.Table]
    pictures: Sequence[Picture]
    diagrams: Mapping[str, str]  # run id -> the space-time diagram of its first violation
    quarantined: Sequence[Quarantined]

    @property
    def is_single(self) -> bool:
        return len(self.runs) == 1


def page(content: Content) -> str:
    title = content.runs[0].run_id if content.is_single else f"{len(content.runs)} runs"
    parts = [
        *_header(content, title),
        *_verdicts(content),
        *_comparison(content),
        *_pictures(content),
        *_tables(content),
        *_configurations(content),
        *_set_aside(content),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>amcast: {text(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def _header(content: Content, title: str) -> list[str]:
    verdict = worst([report.verdict for report in content.reports])
    said = {
        "pass": "All properties hold.",
        "fail": "A property is violated.",
        "unknown": "No violation was found, but not everything could be judged.",
    }[verdict]
    links = [("verdict", "Verdict"), ("figures", "Figures"), ("tables", "Tables"), ("configuration", "Configuration")]
    if not content.is_single:
        links.insert(1, ("comparison", "Comparison"))
    return [
        f"<h1>{text(title)}</h1>",
        f"<p>{badge(verdict)} {text(said)}</p>",
        "<nav>" + "".join(f'<a href="#{anchor}">{name}</a>' for anchor, name in links) + "</nav>",
    ]


# ------------------------------------------------------------------------------------------------- verdicts


def _verdicts(content: Content) -> list[str]:
    parts = ['<h2 id="verdict">Verdict</h2>']
    for number_, (run, report) in enumerate(zip(content.runs, content.reports, strict=True)):
        parts.append(f'<section class="verdict {text(report.verdict)}">')
        parts.append(f"<h3>{badge(report.verdict)} {text(run.run_id)}</h3>")
        parts.append(f'<p class="note">{text(_in_words(run))}<br><code>{text(run.path)}</code></p>')
        if report.verdict == "pass" and not content.is_single:
            parts.append(f'<p class="note">{text(", ".join(report.properties))} hold.</p>')
        else:
            parts.append(_properties(report))
        parts += _evidence(run, report, content.diagrams.get(run.run_id), number_)
        parts.append("</section>")
    return parts


def _in_words(run: RunFiles) -> str:
    info = run.info
    processes = sum(len(group.processes) for group in info.groups)
    words = [
        f"protocol {info.protocol}",
        f"{len(info.groups)} groups",
        f"{processes} processes",
        f"seed {info.seed}",
        f"{run.rows('multicasts'):,} messages",
        f"{run.rows('deliveries'):,} deliveries",
        *([f"{run.rows('operations'):,} operations"] if run.rows("operations") else []),
        "ran to its end" if info.complete else "cut short",
        *(["evidence is missing"] if info.missing else []),
    ]
    return ", ".join(words)


def _properties(report: RunReport) -> str:
    rows = [
        [text(name), badge(verdict), text(report.reasons.get(name, ""))] for name, verdict in report.properties.items()
    ]
    has_reasons = any(report.reasons.values())
    header = ["property", "verdict", "why"]
    return table(header if has_reasons else header[:2], rows if has_reasons else [row[:2] for row in rows])


def _evidence(run: RunFiles, report: RunReport, diagram: str | None, number_: int) -> list[str]:
    if not report.violations:
        return []
    first, *others = report.violations
    parts = ["<h3>Counterexample</h3>", _explained(first), f'<p class="note">{text(_involved(run, first))}</p>']
    if diagram:
        parts.append(embed_svg(diagram, f"counterexample-{number_}", "space-time diagram of the counterexample"))
    if others:
        count = len(others)
        parts.append(f"<details><summary>{count} more finding{'s' if count > 1 else ''}</summary>")
        parts += [_explained(found) for found in others[:_EXPLAINED_MAX]]
        if count > _EXPLAINED_MAX:
            parts.append(f"<p>and {count - _EXPLAINED_MAX} more</p>")
        parts.append("</details>")
    return parts


def _explained(violation: Violation) -> str:
    return f"<blockquote><b>{text(violation.property)}</b>: {text(violation.explanation)}</blockquote>"


def _involved(run: RunFiles, violation: Violation) -> str:
    names = names_of(run)
    messages = dict.fromkeys(names.message(message) for message in violation.messages)
    processes = dict.fromkeys(names.process(process) for process in violation.processes)
    said = [f"messages {', '.join(messages)}"] if messages else []
    said += [f"processes {', '.join(processes)}"] if processes else []
    return "Involved: " + "; ".join(said) if said else ""


# ----------------------------------------------------------------------------------------------- performance


def _comparison(content: Content) -> list[str]:
    if content.is_single:
        return []
    summary = {row["run_id"]: row for row in content.tables["summary"].to_pylist()}
    latency = {
        (row["run_id"], row["scope"]): row
        for row in content.tables["latency_by_scope"].to_pylist()
        if row["delivery"] == "final"
    }
    wire: dict[str, float] = {}
    for row in content.tables["wire_cost"].to_pylist():
        wire[row["run_id"]] = wire.get(row["run_id"], 0.0) + (row["messages_per_delivered"] or 0.0)
    header = ["run", "protocol", "verdict", "messages", "messages / s", "faults"]
    header += ["local p50 (ms)", "local p95 (ms)", "global p50 (ms)", "global p95 (ms)", "wire messages / message"]
    rows: list[list[str | Cell]] = []
    for run, report in zip(content.runs, content.reports, strict=True):
        mine = summary.get(run.run_id, {})
        times = [
            _milliseconds(latency.get((run.run_id, scope), {}).get(name))
            for scope in ("local", "global")
            for name in ("p50_us", "p95_us")
        ]
        numbers = [_or_dash(mine.get(name)) for name in ("messages", "per_second", "faults")]
        cells = [*numbers, *times, _or_dash(wire.get(run.run_id))]
        who = [text(run.run_id), text(run.info.protocol), badge(report.verdict)]
        rows.append([*who, *((cell, "num") for cell in cells)])
    return [
        '<h2 id="comparison">Comparison</h2>',
        f'<p class="note">Latencies are {AT[FIRST_REPLICA]}: {UNTIL[FIRST_REPLICA]}.</p>',
        f'<div class="compact">{table(header, rows, [False] * 3 + [True] * 8)}</div>',
    ]


def _or_dash(value: float | None) -> str:
    return "–" if value is None else number(value)


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else number(value / 1000)


def _pictures(content: Content) -> list[str]:
    parts = ['<h2 id="figures">Figures</h2>']
    for picture in content.pictures:
        parts += [
            f"<h3>{text(picture.title)}</h3>",
            f'<p class="note">{text(picture.note)}</p>',
            embed_svg(picture.svg, f"figure-{picture.name}", picture.title),
        ]
    return parts if content.pictures else [*parts, "<p>Nothing was delivered: there is nothing to draw.</p>"]


def _tables(content: Content) -> list[str]:
    parts = [
        '<h2 id="tables">Tables</h2>',
        '<p class="note">All tables, with all their rows, are in the folder <code>tables</code>.</p>',
    ]
    for name, measure in METRICS.items():
        data = content.tables[name]
        if name in _NOT_SHOWN or not data.num_rows:
            continue
        parts += [
            f"<h3>{text(measure.title)}</h3>",
            f'<p class="note">{text(measure.note)}</p>',
            data_table(data, _uninteresting(content, data), _ROWS_MAX),
        ]
        if data.num_rows > _ROWS_MAX:
            parts.append(f'<p class="note">{data.num_rows - _ROWS_MAX} more rows in tables/{name}.csv</p>')
    return parts


def _uninteresting(content: Content, data: pa.Table) -> list[str]:
    """Columns with the same value in every row."""
    hidden = ["run_id"] if content.is_single else []
    if "delivery" in data.column_names and set(data.column("delivery").to_pylist()) == {"final"}:
        hidden.append("delivery")
    return hidden


# --------------------------------------------------------------------------------------------------- the rest


def _configurations(content: Content) -> list[str]:
    parts = ['<h2 id="configuration">Configuration</h2>']
    for run in content.runs:
        document = encode_run_info(run.info).decode()
        parts.append(f"<details><summary>{text(run.run_id)}</summary><pre>{text(document)}</pre></details>")
    return parts


def _set_aside(content: Content) -> list[str]:
    if not content.quarantined:
        return []
    rows = [[f"<code>{text(found.path)}</code>", text(found.reason)] for found in content.quarantined]
    return ["<h2>Set aside</h2>", "<p>These paths are not part of the report:</p>", table(["path", "why"], rows)]
