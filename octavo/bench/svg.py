"""Small charts as SVG text: stacked bars, and lines over a list of names. No library is needed for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

COLOURS = ("#2b6cb0", "#90cdf4", "#f6ad55", "#cbd5e0", "#805ad5")
LINE_COLOURS = ("#2b6cb0", "#dd6b20", "#805ad5", "#2f855a")
_WIDTH = 760


def stacked_bars(title: str, bars: Mapping[str, Sequence[float]], parts: Sequence[str]) -> str:
    """Horizontal bars; the parts of each are shares that add up to at most 1."""
    left, top, height, room = 210, 74, 26, _WIDTH - 230
    body = [_text(12, 24, title, size=15, weight="600"), *_legend(parts, COLOURS)]
    for row, (name, shares) in enumerate(bars.items()):
        y, x = top + row * (height + 8), float(left)
        body.append(_text(left - 8, y + 17, name, anchor="end"))
        for share, colour in zip(shares, COLOURS, strict=False):
            width = share * room
            body.append(f'<rect x="{x:.1f}" y="{y}" width="{max(0.0, width):.1f}" height="{height}" fill="{colour}"/>')
            if share >= 0.06:
                fill = "#ffffff" if colour == COLOURS[0] else "#1a202c"
                body.append(_text(x + width / 2, y + 17, f"{share:.0%}", anchor="middle", fill=fill))
            x += width
    return _page(top + len(bars) * (height + 8) + 8, body)


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """Horizontal bars, the longest one as wide as the page, with their values."""
    left, top, height, room = 210, 48, 26, _WIDTH - 330
    body = [_text(12, 24, title, size=15, weight="600")]
    most = max(values.values(), default=0.0) or 1.0
    for row, (name, value) in enumerate(values.items()):
        y, width = top + row * (height + 8), max(0.0, value) / most * room
        body.append(_text(left - 8, y + 17, name, anchor="end"))
        body.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{height}" fill="{COLOURS[0]}"/>')
        body.append(_text(left + width + 8, y + 17, f"{value:.1f} {unit}"))
    return _page(top + len(values) * (height + 8) + 8, body)


def lines(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], axis: str) -> str:
    """One line a series over `names`, side by side on the horizontal axis; values are shares from 0 to 1."""
    left, top, width, height = 60, 74, _WIDTH - 90, 240
    body = [_text(12, 24, title, size=15, weight="600"), *_legend(list(series), LINE_COLOURS)]
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


def _legend(names: Sequence[str], colours: Sequence[str], y: int = 46) -> list[str]:
    body, x = [], 12
    for name, colour in zip(names, colours, strict=False):
        body.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        body.append(_text(x + 18, y, name))
        x += 36 + 7 * len(name)
    return body


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
