"""One look for all figures: colours that colour-blind people can tell apart, thin axes, no decoration.

Lines differ in dashes as well as in colour. Text from a run (its name, kinds of messages, faults) is shown as it is:
matplotlib must not read a dollar sign in it as mathematics.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

# Okabe and Ito's palette, without yellow, which can't be seen on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
FAULT_COLOUR = "#8c2d04"
MENDED_COLOUR = "#737373"
WIDTH_INCHES = 8.4
_PNG_DPI = 160

_RC: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.labelcolor": "#222222",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "amcast",
    "figure.facecolor": "white",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as SVG and as PNG. `title` and `note` are shown on the page, files are called `name`."""

    name: str
    title: str
    note: str
    svg: str
    png: bytes


def styled() -> Any:
    """A context in which figures are made and saved."""
    settings: Any = _RC
    return mpl.rc_context(settings)


def new_figure(height_inches: float) -> Figure:
    return Figure(figsize=(WIDTH_INCHES, height_inches), layout="constrained")


def picture(name: str, title: str, note: str, figure: Figure) -> Picture:
    svg, png = io.StringIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib warns of letters that the font does not have
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(svg, format="svg", metadata=nothing)
        figure.savefig(png, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return Picture(name, title, note, svg.getvalue(), png.getvalue())


def shown(text: object, length_max: int = 34) -> str:
    """A label, short and on one line. It must not start with an underscore: matplotlib leaves such labels out."""
    words = " ".join(str(text).split()) or "-"
    half = length_max // 2
    cut = words if len(words) <= length_max else f"{words[: half - 1]}…{words[-half:]}"
    return f" {cut}" if cut.startswith("_") else cut


def line_style(index: int) -> dict[str, Any]:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index // len(COLOURS) % len(DASHES)] if index >= len(DASHES) else DASHES[index],
    }


def legend_beside(axes: Axes, title: str | None = None, panels: Sequence[Axes] = ()) -> None:
    """One legend at the right of `axes`, which also explains the lines of the other `panels`."""
    lines: dict[str, Any] = {}
    for panel in (axes, *panels):
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            lines.setdefault(label, handle)
    if lines:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0}
        legend = axes.legend(lines.values(), lines.keys(), title=title, **place)
        legend.get_title().set_fontsize(9)
        legend.set_in_layout(True)


def uses_log(values: Sequence[float], ratio: float = 30) -> bool:
    """Whether values differ so much that a linear axis would hide the small ones."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) > ratio


def plain_ticks(axis: Any) -> None:
    """1, 10, 100 instead of powers of ten."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
