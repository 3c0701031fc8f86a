"""The reproduction report: what was published, what came out, and where the two differ most. As Markdown and as HTML.

Both are made from the same pieces: a summary, one table of everything with the worst deviation first, and a section for
each recipe with its set-up, its figure and its expectations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from .outcome import Holds, Outcome, RecipeOutcome, Summary, summary_of, worst_first
from .recipe import Scale

_BASIS = {
    "delays": "message delays",
    "hardware": "the authors' machines",
    "workload": "details that were not published",
}
_SIGNS = {"holds": "✓ holds", "differs": "✗ differs", "not measured": "? not measured"}
_STATES: tuple[Holds, ...] = ("holds", "differs", "not measured")
_RECIPES = ("experiment", "source", "runs", "checker", *_STATES)
_WORST = 15
HEADER = ("experiment", "what the paper says", "published", "ours", "off by", "", "decided by")


def number(value: float | None) -> str:
    if value is None:
        return "–"
    size = abs(value)
    if value == int(value) and size < 1e6:
        return f"{int(value):,}"
    return f"{value:,.{0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3}f}"


def _with_unit(value: float | None, unit: str) -> str:
    return number(value) + (f" {unit}" if unit and value is not None else "")


def cells_of(each: Outcome) -> tuple[str, str, str, str, str, str, str]:
    """A row of the table, in the order of `HEADER`."""
    published, ours = _with_unit(each.published, each.unit), _with_unit(each.ours, each.unit)
    if not each.rule.startswith(("within", "exactly")):
        published = f"{published} ({each.rule})" if f"{each.published:g}" not in each.rule else each.rule
    if each.words[0]:
        published, ours = each.words
    off = "–" if each.deviation is None or each.words[0] else f"{each.deviation:+.0%}" if each.deviation else "0"
    return each.recipe, each.what, published, ours, off, _SIGNS[each.holds], _BASIS[each.basis]


def summary_text(summary: Summary) -> str:
    total = summary.holds + summary.differs + summary.not_measured
    missed = f", {summary.not_measured} were not measured" if summary.not_measured else ""
    share = f" ({summary.delays_hold / summary.delays:.0%})" if summary.delays else ""
    return (
        f"{summary.holds} of {total} published statements hold, {summary.differs} differ{missed}. Of those that "
        f"message "
        f"delays alone decide, {summary.delays_hold} of {summary.delays} hold{share}."
    )


# ------------------------------------------------------------------------------------------------------ Markdown


def _md(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _md_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_md(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


_HOW = """Each experiment of the papers is a recipe that simulates it again: see [how to run them](experiments.md).
Runs are deterministic, and each is judged by the checker. What message delays decide should agree closely; what the
authors' machines decide should agree in shape, since the simulator has their machines as one cost of a message, fitted
to one or two published figures. A statement that differs is a result, not an error: where the reason is known, it is
told."""


def markdown(scale: Scale, recipes: Sequence[RecipeOutcome], figures: Mapping[str, str]) -> str:
    """`figures` are the names of the figures' files, by recipe."""
    outcomes = [each for recipe in recipes for each in recipe.outcomes]
    ranked = worst_first(outcomes)
    parts = [
        "# The papers, reproduced",
        f"{_HOW}\n\nThis page is made by `make reproduce` (scale {scale}).",
        summary_text(summary_of(outcomes)),
        "## The worst deviations",
        _md_table(HEADER, [cells_of(each) for each in ranked[:_WORST]]),
        "## All experiments",
        _md_table(_RECIPES, [_recipe_row(each) for each in recipes]),
    ]
    parts += [_md_section(each, figures.get(each.name)) for each in recipes]
    return "\n\n".join(parts) + "\n"


def _recipe_row(each: RecipeOutcome) -> tuple[str, ...]:
    if each.missing:
        return each.name, each.source, "–", each.missing, *["–"] * len(_STATES)
    states = [outcome.holds for outcome in each.outcomes]
    counts = [str(states.count(state)) for state in _STATES]
    return each.name, each.source, str(each.cells), each.verdict or "–", *counts


def _md_section(each: RecipeOutcome, figure: str | None) -> str:
    parts = [f"## {each.name}", f"**{each.title}.** {each.source}. {_md(each.about)}"]
    parts += [_md(text) for text in _remarks(each)]
    if each.outcomes:
        parts.append(_md_table(HEADER[1:], [cells_of(outcome)[1:] for outcome in worst_first(each.outcomes)]))
    parts += [f"- {_md(why)}" for why in _reasons(each)]
    if figure is not None:
        parts.append(f"![{_md(each.title)}]({figure})")
    return "\n\n".join(parts)


def _remarks(each: RecipeOutcome) -> list[str]:
    remarks = [f"Can't be run: {each.missing}."] if each.missing else []
    if each.scaled:
        remarks.append(f"Scaled down: {each.scaled}")
    if each.notes:
        remarks.append(each.notes)
    return remarks + [f"Did not pass: {bad}" for bad in each.bad_runs]


def _reasons(each: RecipeOutcome) -> list[str]:
    """Why statements do not hold; one reason of several is told once."""
    told: dict[str, list[str]] = {}
    for outcome in each.outcomes:
        if outcome.holds != "holds":
            told.setdefault(outcome.why or "No reason is known yet.", []).append(outcome.what)
    return [f"{'; '.join(whats)}: {why}" for why, whats in told.items()]


# ---------------------------------------------------------------------------------------------------------- HTML


def page(scale: Scale, recipes: Sequence[RecipeOutcome], figures: Mapping[str, str]) -> str:
    """One file that loads nothing else. `figures` are SVG documents, by recipe. Needs the extra `report`."""
    from ..pipeline.report import STYLE, embed_svg

    outcomes = [each for recipe in recipes for each in recipe.outcomes]
    body = [
        "<h1>The papers, reproduced</h1>",
        f"<p>{escape(summary_text(summary_of(outcomes)))} Scale {scale}.</p>",
        f"<h2>The worst deviations</h2>{_html_table(HEADER, worst_first(outcomes)[:_WORST], 0)}",
        "<h2>All experiments</h2>",
        _html_recipes(recipes),
    ]
    drawn = {name: embed_svg(svg, f"figure-{name}", name) for name, svg in figures.items()}
    body += [_html_section(each, drawn.get(each.name)) for each in recipes]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The papers, reproduced</title><style>{STYLE}{_STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


_STYLE = """.holds { color: var(--pass); } .differs { color: var(--fail); } .not { color: var(--unknown); }
.holds, .differs, .not { white-space: nowrap; }
"""


def _html_table(header: Sequence[str], outcomes: Sequence[Outcome], first: int) -> str:
    rows = []
    for each in outcomes:
        cells = list(cells_of(each))
        shown = [f"<td>{escape(cell)}</td>" for cell in cells]
        shown[0] = f'<td><a href="#{escape(each.recipe)}">{escape(each.recipe)}</a></td>'
        shown[5] = f'<td class="{each.holds.split()[0]}">{escape(cells[5])}</td>'
        for place in (2, 3, 4):
            shown[place] = f'<td class="num">{escape(cells[place])}</td>'
        rows.append(f"<tr>{''.join(shown[first:])}</tr>")
    return _framed(header[first:], rows)


def _framed(header: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _html_recipes(recipes: Sequence[RecipeOutcome]) -> str:
    rows = []
    for each in recipes:
        cells = [escape(cell) for cell in _recipe_row(each)]
        cells[0] = f'<a href="#{cells[0]}">{cells[0]}</a>'
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return _framed(_RECIPES, rows)


def _html_section(each: RecipeOutcome, figure: str | None) -> str:
    parts = [f'<h2 id="{escape(each.name)}">{escape(each.name)}</h2>']
    parts.append(f"<p><b>{escape(each.title)}.</b> {escape(each.source)}. {escape(each.about)}</p>")
    parts += [f'<p class="note">{escape(text)}</p>' for text in _remarks(each)]
    if each.outcomes:
        parts.append(_html_table(HEADER, worst_first(each.outcomes), 1))
    reasons = "".join(f"<li>{escape(why)}</li>" for why in _reasons(each))
    return "".join(parts) + (f"<ul>{reasons}</ul>" if reasons else "") + (figure or "")
