"""Finding the spellings of added tokens in text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from octavo.text.codec import Span


class SpellingFinder:
    """Finds spellings in text, leftmost first and the longest of those that start at the same place.

    The candidates are found by a character class of first letters (C speed), then looked up by length: the
    cost does not grow with the number of spellings, of which Gemma 3 has more than six thousand.
    """

    def __init__(self, spellings: Mapping[str, int]) -> None:
        self._ids = {spelling: token_id for spelling, token_id in spellings.items() if spelling}
        lengths: dict[str, set[int]] = {}
        for spelling in self._ids:
            lengths.setdefault(spelling[0], set()).add(len(spelling))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        letters = "".join(re.escape(first) for first in self._lengths)
        self._first = re.compile(f"[{letters}]") if letters else None

    def find(self, text: str, start: int = 0) -> tuple[int, int, int] | None:
        """The next (start, end, id) at or after `start`, or None."""
        if self._first is None:
            return None
        while (candidate := self._first.search(text, start)) is not None:
            at = candidate.start()
            for length in self._lengths[text[at]]:
                token_id = self._ids.get(text[at : at + length])
                if token_id is not None:
                    return at, at + length, token_id
            start = at + 1
        return None

    def matches(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Every (start, end, id), without overlaps."""
        found = self.find(text)
        while found is not None:
            yield found
            found = self.find(text, found[1])

    def starts(self, text: str) -> Iterator[int]:
        """Every place where a spelling starts, also inside another one."""
        found = self.find(text)
        while found is not None:
            yield found[0]
            found = self.find(text, found[0] + 1)

    def split(self, text: str) -> list[str | int]:
        """The text as fragments: ids where a spelling stood, the (non-empty) text between."""
        fragments: list[str | int] = []
        end = 0
        for start, stop, token_id in self.matches(text):
            if start > end:
                fragments.append(text[end:start])
            fragments.append(token_id)
            end = stop
        if end < len(text):
            fragments.append(text[end:])
        return fragments


def split_owned(text: str, owned: list[Span], control: Mapping[str, int], others: SpellingFinder) -> list[str | int]:
    """Fragments of `text` with control tokens at exactly the `owned` spans, and `others` found everywhere
    else.
    """
    fragments: list[str | int] = []
    end = 0
    for start, stop in owned:
        fragments += others.split(text[end:start])
        fragments.append(control[text[start:stop]])
        end = stop
    return fragments + others.split(text[end:])
