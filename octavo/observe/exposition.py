"""Counters and histograms, and the text in which Prometheus reads them (format 0.0.4).

Made for one writer: the engine's thread counts without locks, others read at any time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Counter:
    """A number that only grows, one for each value of its label."""

    def __init__(self, name: str, help: str, label: str | None = None, values: Iterable[str] = ()) -> None:
        self.name = name
        self.help = help
        self._label = label
        self._counts: dict[str, float] = dict.fromkeys(values, 0) if label else {"": 0}

    def add(self, amount: float = 1, value: str = "") -> None:
        """Counts, for a value of the label where there is one."""
        self._counts[value] += amount

    def lines(self) -> Iterator[str]:
        samples = [({self._label: value} if self._label else {}, count) for value, count in self._counts.items()]
        return family_lines(self.name, "counter", self.help, samples)


class Histogram:
    """How many observations were at most each bound, and their sum."""

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help = help
        self.bounds = tuple(bounds)
        if list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError(f"bounds={self.bounds}: must grow")
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self._sum += value

    def lines(self) -> Iterator[str]:
        yield from _header(self.name, "histogram", self.help)
        total = 0
        for bound, count in zip([*map(_number, self.bounds), "+Inf"], self._counts.copy(), strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{bound}"}} {total}'
        yield f"{self.name}_sum {_number(self._sum)}"
        yield f"{self.name}_count {total}"


def family_lines(name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> Iterator[str]:
    """One metric with all its samples. A counter's name must end in _total."""
    yield from _header(name, kind, help)
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _header(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
