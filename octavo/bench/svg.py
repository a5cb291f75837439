"""Small charts as SVG text: bars, stacked bars, lines over a list of names. They need no library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from xml.sax.saxutils import escape

COLOURS = ("#2b6cb0", "#90cdf4", "#f6ad55", "#cbd5e0", "#805ad5", "#2f855a", "#e53e3e", "#ecc94b", "#4a5568")
DARK = ("#2b6cb0", "#805ad5", "#2f855a", "#e53e3e", "#4a5568")
"""Those of COLOURS on which text is white"""
LINE_COLOURS = ("#2b6cb0", "#dd6b20", "#805ad5", "#2f855a")
WIDTH = 760


def stacked_bars(
    title: str, bars: Mapping[str, Sequence[float]], parts: Sequence[str], beside: Sequence[str] = ()
) -> str:
    """Horizontal bars; the parts of each are shares that add up to at most 1. beside: what is written after each."""
    legend, extra = _legend(parts, COLOURS)
    left, top, height, room = 210, 74 + extra, 26, WIDTH - (310 if beside else 230)
    body = [text(12, 24, title, size=15, weight="600"), *legend]
    for row, (name, shares) in enumerate(bars.items()):
        y, x = top + row * (height + 8), float(left)
        body.append(text(left - 8, y + 17, name, anchor="end"))
        for share, colour in zip(shares, COLOURS, strict=False):
            width = share * room
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{max(0.0, width):.1f}" height="{height}" fill="{colour}"/>')
            if share >= 0.06:
                fill = "#ffffff" if colour in DARK else "#1a202c"
                body.append(text(x + width / 2, y + 17, f"{share:.0%}", anchor="middle", fill=fill))
            x += width
        if beside:
            body.append(text(left + room + 8, y + 17, beside[row]))
    return page(top + len(bars) * (height + 8) + 8, body)


def bars(title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Groups of horizontal bars with their values, one bar a series; lengths compare within a group only."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    legend, extra = _legend(series, COLOURS)
    left, y, height, room = 210, 74 + extra, 18, WIDTH - 310
    body = [text(12, 24, f"{title}, {unit}", size=15, weight="600"), *legend]
    for name, group in groups.items():
        body.append(text(left - 8, y + 13, name, anchor="end"))
        longest = max(group.values(), default=0.0) or 1.0
        for key, value in group.items():
            width = max(0.0, value / longest * room)
            colour = COLOURS[series.index(key) % len(COLOURS)]
            body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>')
            body.append(text(left + width + 6, y + 13, figure(value)))
            y += height + 2
        y += 12
    return page(y + 8, body)


def lines(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], axis: str) -> str:
    """One line a series over `names`, side by side on the horizontal axis; values are shares from 0 to 1."""
    legend, extra = _legend(list(series), LINE_COLOURS)
    left, top, width, height = 60, 74 + extra, WIDTH - 90, 240
    body = [text(12, 24, title, size=15, weight="600"), *legend]
    for tick in range(0, 101, 25):
        y = top + height * (1 - tick / 100)
        body.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        body.append(text(left - 8, y + 4, f"{tick} %", anchor="end"))
    places = [left + width * (place + 0.5) / len(names) for place in range(len(names))]
    for x, name in zip(places, names, strict=True):
        body.append(text(x, top + height + 20, name, anchor="middle"))
    body.append(text(left + width / 2, top + height + 42, axis, anchor="middle"))
    for values, colour in zip(series.values(), LINE_COLOURS, strict=False):
        points = [(x, top + height * (1 - value)) for x, value in zip(places, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    return page(top + height + 58, body)


def figure(value: float) -> str:
    """A number for people, to three digits or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _legend(names: Sequence[str], colours: Sequence[str], y: int = 46) -> tuple[list[str], int]:
    """The legend, and by how much its further lines move what is below."""
    body: list[str] = []
    x, extra = 12, 0
    for name, colour in zip(names, cycle(colours), strict=False):
        width = 36 + 7 * len(name)
        if x > 12 and x + width > WIDTH:
            x, extra = 12, extra + 20
        body.append(f'<rect x="{x}" y="{y + extra - 10}" width="12" height="12" fill="{colour}"/>')
        body.append(text(x + 18, y + extra, name))
        x += width
    return body, extra


def text(
    x: float, y: float, what: str, anchor: str = "start", size: int = 12, weight: str = "400", fill: str = "#1a202c"
) -> str:
    """An element of the chart; y is the line that it stands on."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}">{escape(what)}</text>'
    )


def page(height: int, body: Sequence[str]) -> str:
    """The whole picture, on white: dark letters stay legible where it is shown on black."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
            f'height="{height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        ]
    )
