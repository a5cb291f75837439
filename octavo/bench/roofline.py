"""A roofline as SVG text: operations a second over operations per byte, under the machine's limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from octavo.bench.svg import LINE_COLOURS, WIDTH, page, text

_COLOURS = (*LINE_COLOURS, "#e53e3e", "#b7791f", "#0987a0")
_GREY = "#4a5568"
_LEFT, _PLOT_WIDTH, _PLOT_HEIGHT = 56, WIDTH - 176, 420
_HEADROOM = 34
"""Pixels above the highest mark and peak, where the slopes' names are"""
_LABEL = 10
"""Font size of the marks' labels"""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom"""
Place = Callable[[float, float], tuple[float, float]]
"""Pixels of (operations per byte, TOP/s)"""


@dataclass(frozen=True, slots=True)
class Mark:
    """One measurement."""

    operations_per_byte: float
    top_per_s: float
    label: str


@dataclass(frozen=True, slots=True)
class Series:
    """Marks of one kernel. The kind decides on their form, the variant on their colour and a line between them."""

    kind: str
    variant: str
    marks: Sequence[Mark]


def roofline(
    title: str, slopes: Mapping[str, float], peaks: Mapping[str, float], series: Sequence[Series], note: str
) -> str:
    """Both axes are logarithmic. slopes: GB/s by name; peaks: TOP/s by name. A label without room is left out."""
    looks = _looks(series)
    legend, extra = _legend(looks)
    top = 84 + extra
    xs, ys = _ranges(slopes, peaks, series)
    at = _place(xs, ys, top)
    body = [text(12, 24, title, size=15, weight="600"), *legend]
    body += [
        *_axes(at, xs, ys, top),
        *_slopes(at, (xs[0], ys[0]), top, slopes, peaks),
        *_peaks(at, xs, slopes, peaks),
    ]
    for each in series:
        body += _joined(at, each, looks[each.kind, each.variant][1])
    placed = [
        (*at(mark.operations_per_byte, mark.top_per_s), mark.label, looks[each.kind, each.variant])
        for each in series
        for mark in each.marks
    ]
    body += [_form(form, x, y, colour) for x, y, _, (form, colour) in placed]
    roofs = [at(xs[0], peak)[1] for peak in peaks.values()]
    body += _labels([(x, y, label, colour) for x, y, label, (_, colour) in placed], roofs, top)
    bottom = top + _PLOT_HEIGHT
    body.append(text(_LEFT + _PLOT_WIDTH / 2, bottom + 38, "operations per byte", anchor="middle"))
    body.append(text(12, bottom + 62, note, size=11, fill=_GREY))
    return page(bottom + 76, body)


def _looks(series: Sequence[Series]) -> dict[tuple[str, str], tuple[int, str]]:
    """Form and colour by kind and variant."""
    kinds = list(dict.fromkeys(each.kind for each in series))
    variants = list(dict.fromkeys(each.variant for each in series if each.variant))
    return {
        (each.kind, each.variant): (
            kinds.index(each.kind) % 4,
            _COLOURS[variants.index(each.variant) % len(_COLOURS)] if each.variant else _GREY,
        )
        for each in series
    }


def _legend(looks: Mapping[tuple[str, str], tuple[int, str]]) -> tuple[list[str], int]:
    """A line a kind of several variants; and by how much that moves what is below."""
    body: list[str] = []
    x, y, last = 12.0, 46, ""
    for (kind, variant), (form, colour) in looks.items():
        name = f"{kind} {variant}".strip()
        if body and ((variant and kind != last) or x + 36 + 7 * len(name) > WIDTH):
            x, y = 12.0, y + 20
        body += [_form(form, x + 6, y - 4, colour), text(x + 18, y, name)]
        x, last = x + 36 + 7 * len(name), kind
    return body, y - 46


def _ranges(
    slopes: Mapping[str, float], peaks: Mapping[str, float], series: Sequence[Series]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of both axes: all marks and the corners of the roof."""
    marks = [mark for each in series for mark in each.marks]
    highest = max(peaks.values())
    xs = [mark.operations_per_byte for mark in marks] + [highest / speed * 1e3 for speed in slopes.values()]
    ys = [mark.top_per_s for mark in marks] + list(peaks.values())
    return (min(xs) / 1.6, max(xs) * 1.6), (min(ys) / 1.6, max(ys))


def _place(xs: tuple[float, float], ys: tuple[float, float], top: int) -> Place:
    def place(x: float, y: float) -> tuple[float, float]:
        across = log10(x / xs[0]) / log10(xs[1] / xs[0])
        up = log10(y / ys[0]) / log10(ys[1] / ys[0])
        return _LEFT + _PLOT_WIDTH * across, top + _PLOT_HEIGHT - (_PLOT_HEIGHT - _HEADROOM) * up

    return place


def _axes(at: Place, xs: tuple[float, float], ys: tuple[float, float], top: int) -> Iterator[str]:
    bottom, right = top + _PLOT_HEIGHT, _LEFT + _PLOT_WIDTH
    yield text(_LEFT - 8, top - 12, "TOP/s", anchor="end")
    for tick in _ticks(*ys, _PLOT_HEIGHT):
        _, y = at(xs[0], tick)
        yield _line([(_LEFT, y), (right, y)], "#e2e8f0", 1)
        yield text(_LEFT - 8, y + 4, f"{tick:g}", anchor="end", size=11)
    for tick in _ticks(*xs, _PLOT_WIDTH):
        x, _ = at(tick, ys[0])
        yield _line([(x, top), (x, bottom)], "#edf2f7", 1)
        yield text(x, bottom + 18, f"{tick:,g}", anchor="middle", size=11)
    yield _line([(_LEFT, top), (_LEFT, bottom), (right, bottom)], "#a0aec0", 1)


def _ticks(low: float, high: float, room: int) -> list[float]:
    """Powers of ten, with twice and five times them where there is room."""
    steps = (1, 2, 5) if room / log10(high / low) >= 90 else (1,)
    exponents = range(floor(log10(low)), ceil(log10(high)) + 1)
    return [tick for exponent in exponents for step in steps if low <= (tick := float(f"{step}e{exponent}")) <= high]


def _slopes(
    at: Place, corner: tuple[float, float], top: int, slopes: Mapping[str, float], peaks: Mapping[str, float]
) -> Iterator[str]:
    """From the lower left corner to the highest peak; the slowest is the roof. Names are above the upper ends."""
    peak, slowest = max(peaks.values()), min(slopes.values())
    for name, speed in slopes.items():
        first = max(corner[0], corner[1] / speed * 1e3)
        end = at(peak / speed * 1e3, peak)
        main = speed == slowest
        yield _line([at(first, first * speed / 1e3), end], _GREY, 1.6 if main else 1, "" if main else "5 4")
        shift, anchor = (0, "start") if main else (-6, "end")
        yield text(end[0] + shift, top + 14, f"{name}, {speed:.0f} GB/s", anchor=anchor, size=11, fill=_GREY)


def _peaks(
    at: Place, ends: tuple[float, float], slopes: Mapping[str, float], peaks: Mapping[str, float]
) -> Iterator[str]:
    """Their names are at the right, beside the plot, at least a line apart."""
    fastest, above = max(slopes.values()), float("-inf")
    for name, peak in sorted(peaks.items(), key=lambda each: -each[1]):
        (x0, y), (x1, _) = at(max(ends[0], peak / fastest * 1e3), peak), at(ends[1], peak)
        yield _line([(x0, y), (x1, y)], _GREY, 1.6)
        above = max(y + 4, above + 14)
        yield text(x1 + 6, above, f"{name}, {peak:.2f} TOP/s", size=11, fill=_GREY)


def _joined(at: Place, series: Series, colour: str) -> list[str]:
    if not series.variant or len(series.marks) < 2:
        return []
    return [_line([at(mark.operations_per_byte, mark.top_per_s) for mark in series.marks], colour, 1.2, "", 0.45)]


def _line(
    points: Iterable[tuple[float, float]], colour: str, width: float, dashes: str = "", opacity: float = 1
) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    more = (f' stroke-dasharray="{dashes}"' if dashes else "") + (f' opacity="{opacity:g}"' if opacity < 1 else "")
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{more}/>'


def _form(form: int, x: float, y: float, colour: str) -> str:
    """A circle, a square, a triangle or a diamond around the point."""
    look = f'fill="{colour}" stroke="#ffffff" stroke-width="1"'
    if form == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {look}/>'
    if form == 1:
        return f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" {look}/>'
    corners = ((0, -5.5), (5.2, 4), (-5.2, 4)) if form == 2 else ((0, -6), (6, 0), (0, 6), (-6, 0))
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return f'<polygon points="{path}" {look}/>'


def _labels(placed: Sequence[tuple[float, float, str, str]], roofs: Sequence[float], top: int) -> list[str]:
    """Each in the first place around its mark that no mark and no label before it takes, off the roofs if it can be.

    Long ones first: they fit in fewer places.
    """
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y, *_ in placed]
    lines: list[Box] = [(_LEFT, y - 1, _LEFT + _PLOT_WIDTH, y + 1) for y in roofs]
    body = []
    for x, y, label, colour in sorted(placed, key=lambda each: -len(each[2])):
        boxes = [box for box in _around(x, y, 0.62 * _LABEL * len(label)) if _inside(box, top)]
        free = [box for box in boxes if not any(_overlap(box, other) for other in taken)]
        best = [box for box in free if not any(_overlap(box, line) for line in lines)] or free
        if best:
            taken.append(best[0])
            left, upper, right, _ = best[0]
            body.append(text((left + right) / 2, upper + 8.5, label, anchor="middle", size=_LABEL, fill=colour))
    return body


def _around(x: float, y: float, width: float) -> Iterator[Box]:
    """Boxes for a label around a mark, the better places first."""
    above, below, left, right, middle = y - 15, y + 6, x - 7 - width, x + 7, x - width / 2
    for edge, upper in (
        (middle, above), (middle, below), (right, y - 5), (left, y - 5),
        (right - 4, above), (right - 4, below), (left + 4, above), (left + 4, below),
    ):  # fmt: skip
        yield edge, upper, edge + width, upper + 10


def _inside(box: Box, top: int) -> bool:
    return box[0] >= _LEFT and box[1] >= top and box[2] <= _LEFT + _PLOT_WIDTH and box[3] <= top + _PLOT_HEIGHT


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
