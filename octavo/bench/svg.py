"""Small charts as SVG text: bars, stacked bars, lines over a list of names, a roofline. They need no library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

COLOURS = ("#2b6cb0", "#90cdf4", "#f6ad55", "#cbd5e0", "#805ad5", "#2f855a", "#e53e3e", "#ecc94b", "#4a5568")
DARK = ("#2b6cb0", "#805ad5", "#2f855a", "#e53e3e", "#4a5568")
"""Those of COLOURS on which text is white"""
LINE_COLOURS = ("#2b6cb0", "#dd6b20", "#805ad5", "#2f855a")
_WIDTH = 760


def stacked_bars(title: str, bars: Mapping[str, Sequence[float]], parts: Sequence[str]) -> str:
    """Horizontal bars; the parts of each are shares that add up to at most 1."""
    legend, extra = _legend(parts, COLOURS)
    left, top, height, room = 210, 74 + extra, 26, _WIDTH - 230
    body = [_text(12, 24, title, size=15, weight="600"), *legend]
    for row, (name, shares) in enumerate(bars.items()):
        y, x = top + row * (height + 8), float(left)
        body.append(_text(left - 8, y + 17, name, anchor="end"))
        for share, colour in zip(shares, COLOURS, strict=False):
            width = share * room
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{max(0.0, width):.1f}" height="{height}" fill="{colour}"/>')
            if share >= 0.06:
                fill = "#ffffff" if colour in DARK else "#1a202c"
                body.append(_text(x + width / 2, y + 17, f"{share:.0%}", anchor="middle", fill=fill))
            x += width
    return _page(top + len(bars) * (height + 8) + 8, body)


def bars(title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Groups of horizontal bars with their values, one bar a series; lengths compare within a group only."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    legend, extra = _legend(series, COLOURS)
    left, y, height, room = 210, 74 + extra, 18, _WIDTH - 310
    body = [_text(12, 24, f"{title}, {unit}", size=15, weight="600"), *legend]
    for name, group in groups.items():
        body.append(_text(left - 8, y + 13, name, anchor="end"))
        longest = max(group.values(), default=0.0) or 1.0
        for key, value in group.items():
            width = max(0.0, value / longest * room)
            colour = COLOURS[series.index(key) % len(COLOURS)]
            body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>')
            body.append(_text(left + width + 6, y + 13, f"{value:,.0f}" if value >= 100 else f"{value:.3g}"))
            y += height + 2
        y += 12
    return _page(y + 8, body)


def roofline(
    title: str, bandwidth: float, peaks: Mapping[str, float], points: Mapping[str, Sequence[tuple[float, float]]]
) -> str:
    """Operations a second over operations per byte, both logarithmic.

    bandwidth: bytes a second, the slope; peaks: operations a second by name, the roofs. points: (operations per byte,
    operations a second) by series.
    """
    legend, extra = _legend(list(points), COLOURS)
    left, top, width, height = 80, 74 + extra, _WIDTH - 110, 300
    known = [point for series in points.values() for point in series]
    xs = (min(0.1, *(x for x, _ in known)), max(1000.0, *(x for x, _ in known)))
    ys = (min(1e9, *(y for _, y in known)), 2 * max(*peaks.values(), *(y for _, y in known)))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - log10(xs[0])) / (log10(xs[1]) - log10(xs[0]))
        up = (log10(y) - log10(ys[0])) / (log10(ys[1]) - log10(ys[0]))
        return left + width * min(1.0, max(0.0, across)), top + height * (1 - min(1.0, max(0.0, up)))

    body = [_text(12, 24, title, size=15, weight="600"), *legend]
    for exponent in range(ceil(log10(ys[0])), floor(log10(ys[1])) + 1):
        _, y = at(xs[0], 10.0**exponent)
        body.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        body.append(_text(left - 8, y + 4, f"{10.0 ** (exponent - 12):g} TOP/s", anchor="end", size=11))
    for exponent in range(ceil(log10(xs[0])), floor(log10(xs[1])) + 1):
        x, _ = at(10.0**exponent, ys[0])
        body.append(_text(x, top + height + 18, f"{10.0**exponent:g}", anchor="middle", size=11))
    for name, peak in peaks.items():
        (x0, y0), (x1, y1), (x2, _) = (
            at(max(xs[0], ys[0] / bandwidth), ys[0]),
            at(peak / bandwidth, peak),
            at(xs[1], peak),
        )
        _, y0 = at(xs[0], max(ys[0], xs[0] * bandwidth))
        path = f"{x0:.1f},{y0:.1f} {x1:.1f},{y1:.1f} {x2:.1f},{y1:.1f}"
        body.append(f'<polyline points="{path}" fill="none" stroke="#4a5568" stroke-width="1.5"/>')
        body.append(_text(x2, y1 - 5, name, anchor="end", size=11))
    for series, colour in zip(points.values(), COLOURS, strict=False):
        for x, y in (at(*point) for point in series):
            body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
    body.append(_text(left + width / 2, top + height + 38, "operations per byte", anchor="middle"))
    return _page(top + height + 50, body)


def lines(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], axis: str) -> str:
    """One line a series over `names`, side by side on the horizontal axis; values are shares from 0 to 1."""
    legend, extra = _legend(list(series), LINE_COLOURS)
    left, top, width, height = 60, 74 + extra, _WIDTH - 90, 240
    body = [_text(12, 24, title, size=15, weight="600"), *legend]
    for tick in range(0, 101, 25):
        y = top + height * (1 - tick / 100)
        body.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}" stroke="#e2e8f0"/>')
        body.append(_text(left - 8, y + 4, f"{tick} %", anchor="end"))
    places = [left + width * (place + 0.5) / len(names) for place in range(len(names))]
    for x, name in zip(places, names, strict=True):
        body.append(_text(x, top + height + 20, name, anchor="middle"))
    body.append(_text(left + width / 2, top + height + 42, axis, anchor="middle"))
    for values, colour in zip(series.values(), LINE_COLOURS, strict=False):
        points = [(x, top + height * (1 - value)) for x, value in zip(places, values, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
    return _page(top + height + 58, body)


def _legend(names: Sequence[str], colours: Sequence[str], y: int = 46) -> tuple[list[str], int]:
    """The legend, and by how much its further lines move what is below."""
    body: list[str] = []
    x, extra = 12, 0
    for name, colour in zip(names, colours, strict=False):
        width = 36 + 7 * len(name)
        if x > 12 and x + width > _WIDTH:
            x, extra = 12, extra + 20
        body.append(f'<rect x="{x}" y="{y + extra - 10}" width="12" height="12" fill="{colour}"/>')
        body.append(_text(x + 18, y + extra, name))
        x += width
    return body, extra


def _text(
    x: float, y: float, text: str, anchor: str = "start", size: int = 12, weight: str = "400", fill: str = "#1a202c"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )


def _page(height: int, body: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
            f'height="{height}" font-family="sans-serif">',
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *body,
            "</svg>\n",
        ]
    )
