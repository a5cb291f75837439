"""Stop strings in the text of beams, which share beginnings and part: a value instead of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self


class Decoder(Protocol):
    """What a tokenizer offers."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True, /) -> str: ...


class StopSearch:
    """The last tokens of one beam's output, and the stop string that they hold. Never changes.

    Only so many tokens are kept that any stop string that the newest one completes lies within them, even if
    each of its letters took four. An earlier one would have ended the beam before.
    """

    __slots__ = ("_decoder", "_length", "_num_skipped", "_skip_special_tokens", "_stop", "_tail", "matched")

    def __init__(
        self, decoder: Decoder, stop: Sequence[str], skip_special_tokens: bool = True, num_skipped: int = 0
    ) -> None:
        """num_skipped: tokens at the beginning (min_tokens) whose text does not count."""
        self._decoder = decoder
        self._stop = tuple(stop)
        self._length = 4 * max(map(len, self._stop)) + 8
        self._skip_special_tokens = skip_special_tokens
        self._num_skipped = num_skipped
        self._tail: tuple[int, ...] = ()
        self.matched: str | None = None

    def extended(self, token_id: int) -> Self:
        """The same for one token more."""
        other = type(self).__new__(type(self))
        other._decoder, other._stop, other._length = self._decoder, self._stop, self._length
        other._skip_special_tokens = self._skip_special_tokens
        other._num_skipped = max(0, self._num_skipped - 1)
        other._tail, other.matched = self._tail, None
        if not self._num_skipped:
            other._tail = (*self._tail[1 - self._length :], token_id)
            other.matched = other._find()
        return other

    def _find(self) -> str | None:
        """The stop string that is complete first; of those that end at the same letter, the longest."""
        text = self._decoder.decode(self._tail, self._skip_special_tokens)
        found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in self._stop if stop in text]
        return min(found)[2] if found else None
