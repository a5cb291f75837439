"""How HTTP requests were answered, counted for /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from octavo.observe.exposition import family_lines

NO_ANSWER = "none"
"""The status of a request whose client left before it had one"""
NO_ROUTE = "other"


class RequestCounts:
    """Counts by route and status. Made for the event loop's thread: the engine's never comes here.

    A route is the path of a known one, so clients cannot make new series.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, route: str, status: int) -> None:
        """Counts an answer. 0 stands for none."""
        self._counts[route, str(status) if status else NO_ANSWER] += 1

    def lines(self) -> Iterator[str]:
        """In Prometheus' text format."""
        yield from family_lines(
            "octavo_http_requests_total",
            "counter",
            "HTTP requests by route and status; a stream that failed on its way counts with its error's status.",
            [({"route": route, "status": status}, count) for (route, status), count in sorted(self._counts.items())],
        )
