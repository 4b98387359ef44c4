"""A chart as SVG, drawn by matplotlib: one drawing for the HTML page and for the repository, light and dark.

Lines and letters take the colour of the text around them (`currentColor`), and the background is transparent. Text
stays text. Nothing needs a `style` attribute, so a page with a strict Content-Security-Policy can have it inline.
The same chart gives the same bytes: no date, no random ids.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ottla.lab.report.figures import number
from ottla.lab.results import Chart

PALETTE = (
    "#2f7fd0",
    "#d9731a",
    "#2c9c69",
    "#c2477f",
    "#8463c9",
    "#a8832a",
    "#1f98a8",
    "#c8524a",
)
"""Each has a contrast of at least 3 to white and to the dark page."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Not as many as colours, so that the pairs repeat late."""
DASHES = ("-", "--", "-.", ":")
INK = "#010203"
"""Stands for the colour of the text around the chart; no other colour looks like it."""
WIDTH, HEIGHT = 5.6, 3.3
"""Inches of 72 points: small, so that letters stay readable where the page is narrow."""
BAR_INCHES = 0.2
LONG_CATEGORY = 12
LABELLED_BARS_MAX = 24
UPRIGHT_BARS_MIN = 3
"""Categories; fewer are not made wider."""
MARKED_POINTS_MAX = 30
TICKED_VALUES_MAX = 8
FEW_DECADES = 100
"""Largest over smallest value, below which powers of ten alone would be too few ticks."""
LEGEND_LETTERS = 74
"""That fit beside each other, those of a series with five for its mark."""
SVG = "http://www.w3.org/2000/svg"
HREF = "{http://www.w3.org/1999/xlink}href"
STYLE_OF_A_FILE = "svg{color:#1f2328}@media(prefers-color-scheme:dark){svg{color:#d7dce2}}"

SETTINGS = {
    "text.parse_math": False,  # a name is a name, whatever characters it has
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "path.simplify": True,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}


def svg_of(chart: Chart, name: str) -> str:
    """An `<svg>` element to stand in a page. `name` begins its ids, which must differ within the page."""
    return ElementTree.tostring(_drawn(chart, name), encoding="unicode") + "\n"


def svg_file_of(chart: Chart, name: str) -> str:
    """A file of its own, with colours for light and dark."""
    root = _drawn(chart, name)
    root.set("xmlns", SVG)
    style = ElementTree.Element("style")
    style.text = STYLE_OF_A_FILE
    root.insert(1, style)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def described(chart: Chart) -> str:
    """The chart in words, for who does not see it."""
    kind = {"line": "Line chart", "bar": "Bar chart", "scatter": "Scatter chart"}[chart.kind]
    axes = f"{chart.y_label} by {chart.x_label}" if chart.x_label else chart.y_label
    return f"{kind}: {chart.title}. {axes}. " + "; ".join(
        f"{series}: {_in_words(chart, points)}" for series, points in chart.series.items()
    )


def _in_words(chart: Chart, points: Sequence[tuple[Any, float]]) -> str:
    if not points:
        return "no points"
    if chart.kind == "bar":
        return ", ".join(f"{x} {number(y)}" for x, y in points)
    values = [y for _, y in points]
    if chart.kind == "scatter":
        return (
            f"{number(points[0][1])} at {number(points[0][0])}"
            if len(points) == 1
            else f"{len(points)} points from {number(min(values))} to {number(max(values))}"
        )
    (first, at_first), (last, at_last) = points[0], points[-1]
    return f"from {number(at_first)} at {number(first)} to {number(at_last)} at {number(last)}"


class _Look(NamedTuple):
    colour: str
    marker: str
    dash: str


def _looks() -> Iterator[_Look]:
    """Different in shape as well as in colour."""
    for at, (colour, marker) in enumerate(zip(cycle(PALETTE), cycle(MARKERS), strict=False)):
        yield _Look(colour, marker, DASHES[at % len(DASHES)])


# -- matplotlib


def _drawn(chart: Chart, name: str) -> ElementTree.Element:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, _height(chart)), layout="constrained")
        axes = figure.add_subplot()
        if chart.kind == "bar":
            _draw_bars(chart, axes)
        else:
            _draw_points(chart, axes)
        if len(chart.series) > 1:
            longest = max(map(len, chart.series))
            columns = max(1, min(len(chart.series), LEGEND_LETTERS // (longest + 5)))
            figure.legend(loc="outside lower left", ncols=columns, columnspacing=1.4)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return _plain(file.getvalue(), name, chart)


def _lies(chart: Chart) -> bool:
    """Bars lie where their names need the room."""
    categories = _categories(chart)
    return len(categories) > 6 or max(map(len, categories), default=0) > LONG_CATEGORY


def _height(chart: Chart) -> float:
    legend = 0.18 * len(chart.series) if len(chart.series) > 6 else 0.0
    if chart.kind != "bar" or not _lies(chart):
        return HEIGHT + legend
    bars = len(_categories(chart)) * (len(chart.series) + 0.6)
    return max(1.6, 1.1 + BAR_INCHES * bars) + legend


def _categories(chart: Chart) -> list[str]:
    return list(dict.fromkeys(str(x) for points in chart.series.values() for x, _ in points))


def _draw_bars(chart: Chart, axes: Any) -> None:
    categories = _categories(chart)
    lies = _lies(chart)
    thickness = 0.8 / max(1, len(chart.series))
    labelled = len(categories) * len(chart.series) <= LABELLED_BARS_MAX
    for at, ((series, points), look) in enumerate(
        zip(chart.series.items(), _looks(), strict=False)
    ):
        places = [categories.index(str(x)) - 0.4 + thickness * (at + 0.5) for x, _ in points]
        values = [y for _, y in points]
        draw = axes.barh if lies else axes.bar
        bars = draw(places, values, thickness * 0.92, color=look.colour, label=series)
        if labelled:
            axes.bar_label(bars, [number(y) for y in values], padding=3, fontsize=9)
    values_axis, names_axis = (axes.xaxis, axes.yaxis) if lies else (axes.yaxis, axes.xaxis)
    names_axis.set_ticks(range(len(categories)), categories)
    names_axis.set_tick_params(length=0)
    axes.margins(**{"x" if lies else "y": 0.12})  # for the figures at the ends of the bars
    _measure(values_axis, [y for points in chart.series.values() for _, y in points], chart.log_y)
    values_axis.grid(True)
    if lies:
        axes.invert_yaxis()
        axes.set_xlabel(chart.y_label)
        _title_left(axes, chart.x_label)
    else:
        spare = max(0, UPRIGHT_BARS_MIN - len(categories)) / 2
        axes.set_xlim(-0.5 - spare, len(categories) - 0.5 + spare)
        axes.set_xlabel(chart.x_label)
        _title_left(axes, chart.y_label)


def _draw_points(chart: Chart, axes: Any) -> None:
    for (series, points), look in zip(chart.series.items(), _looks(), strict=False):
        places, values = [x for x, _ in points], [y for _, y in points]
        if chart.kind == "scatter":
            one = len(points) == 1
            axes.scatter(
                places,
                values,
                s=46 if one else 16,
                marker=look.marker,
                color=look.colour,
                alpha=1 if one else 0.75,
                linewidths=0,
                label=series,
                clip_on=False,
                zorder=3,
            )
        else:
            marker = look.marker if len(points) <= MARKED_POINTS_MAX else ""
            axes.plot(places, values, look.dash, marker=marker, color=look.colour, label=series)
    xs = [x for points in chart.series.values() for x, _ in points]
    ys = [y for points in chart.series.values() for _, y in points]
    _measure(axes.xaxis, xs, chart.log_x)
    _measure(axes.yaxis, ys, chart.log_y)
    distinct = sorted(set(xs))
    if chart.kind == "line" and len(distinct) <= TICKED_VALUES_MAX:
        axes.xaxis.set_ticks(distinct)
    if not chart.log_y and min(ys, default=-1) >= 0:
        axes.set_ylim(bottom=0, top=None if max(ys) > 0 else 1)
    axes.grid(True)
    axes.set_xlabel(chart.x_label)
    _title_left(axes, chart.y_label)


def _title_left(axes: Any, text: str) -> None:
    """The label of the upright axis, written where it can be read without turning the head."""
    axes.set_title(text, loc="left", fontsize=10, pad=8)


def _measure(axis: Any, values: Sequence[float], is_log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    positive = [value for value in values if value > 0]
    if is_log and positive:
        if len(positive) == len(values):
            scale("log")
            if max(values) < FEW_DECADES * min(values):
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        else:  # nought has no place on a logarithmic axis
            scale("symlog", linthresh=min(positive))
    elif all(value == int(value) for value in values):  # nothing is counted in fifths
        axis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(round(value, 9))))


# -- from matplotlib's SVG to one that needs no style attributes


def _plain(text: str, name: str, chart: Chart) -> ElementTree.Element:
    root = ElementTree.fromstring(text)
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in list(root.iter()):
        tag = element.tag.removeprefix(f"{{{SVG}}}")
        if tag in ("metadata", "style") or "}" in tag:
            if element in parents and element in list(parents[element]):
                parents[element].remove(element)
            continue
        element.tag = tag
        element.text = element.text.strip() or None if element.text else None
        element.tail = None
        _unstyle(element)
    used = {
        found
        for element in root.iter()
        for value in element.attrib.values()
        for found in re.findall(r"^#(\S+)$|url\(#([^)]+)\)", value)
    }
    ids = {one or other for one, other in used}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            element.set(key, _attribute(key, value, name))
            if key == "id" and value not in ids:
                del element.attrib[key]
    _drop_empty(root)
    title = ElementTree.Element("title")
    title.text = chart.title
    root.insert(0, title)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "role": "img",
        "aria-label": described(chart),
        "font-family": "system-ui, sans-serif",
        "stroke-linejoin": "round",
    }
    return root


def _unstyle(element: ElementTree.Element) -> None:
    """Styles become attributes."""
    if HREF in element.attrib:
        element.set("href", element.attrib.pop(HREF))
    for declaration in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key and key != "font-family":  # the root has the one of all
            element.set(key, value)
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value[1:]}"
    if value.startswith("url(#"):
        return f"url(#{name}-{value[5:]}"
    if value == INK:
        return "currentColor"
    if key in ("d", "transform", "x", "y", "width", "height", "viewBox"):
        return " ".join(re.sub(r"-?\d+\.\d+", _rounded, value).split())
    return value


def _rounded(found: re.Match[str]) -> str:
    """A hundredth of a point is finer than any screen."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _drop_empty(element: ElementTree.Element) -> None:
    for child in list(element):
        _drop_empty(child)
        if child.tag in ("g", "defs") and not len(child):
            element.remove(child)
