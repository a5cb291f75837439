"""Merging neighbouring parts of a word, best pair first: what BPE vocabularies of every kind do."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

_REMEMBERED_WORDS = 32768
_REMEMBERED_LENGTH = 64


def merge_parts(parts: list[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """Merge in place until nothing can be merged: lowest rank first, then leftmost.

    `rank(left, right)` is None for neighbours that do not merge. O(n log n) for n parts.
    """
    before = list(range(-1, len(parts) - 1))
    after = [*range(1, len(parts)), -1]
    # (rank, left, right, length of the union); an entry is stale once either side has changed its length.
    queue: list[tuple[float, int, int, int]] = []

    def offer(left: int, right: int) -> None:
        found = rank(parts[left], parts[right])
        if found is not None:
            heapq.heappush(queue, (found, left, right, len(parts[left]) + len(parts[right])))

    for right in range(1, len(parts)):
        offer(right - 1, right)
    while queue:
        _, left, right, length = heapq.heappop(queue)
        if not parts[left] or not parts[right] or len(parts[left]) + len(parts[right]) != length:
            continue
        parts[left] += parts[right]
        parts[right] = ""
        following = after[left] = after[right]
        if following >= 0:
            before[following] = left
            offer(left, following)
        if before[left] >= 0:
            offer(before[left], left)
    return [part for part in parts if part]


class WordMemory:
    """Ids of words met before, within bounds: ordinary text repeats its words."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._words: dict[str, list[int]] = {}

    def extend(self, ids: list[int], words: Sequence[str]) -> None:
        """Append the ids of `words` to `ids`."""
        known = self._words
        for word in words:
            found = known.get(word)
            if found is None:
                found = self._encode(word)
                if len(word) <= _REMEMBERED_LENGTH:
                    if len(known) >= _REMEMBERED_WORDS:
                        known.clear()
                    known[word] = found
            ids += found
