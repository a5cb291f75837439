"""What a sequence's own tokens say about its next ones: text repeats itself, and repeats what it was asked about."""

from __future__ import annotations

from math import log

NO_PLACE = -1

MEMORY = 8
"""Predictions over which the hit rate is an average"""


class NgramLookup:
    """Predicts the tokens of a sequence, as prompt lookup decoding does (Saxena, 2023): those that came after its last
    two tokens when these came before, the latest time.

    It knows how good it is: each token that it is told of is held against what it would have said.
    """

    __slots__ = ("_hit_rate", "_length", "_places", "_run", "_source")

    def __init__(self, token_ids: list[int]) -> None:
        """token_ids: what the sequence has by now."""
        self._places: dict[int, int] = {}  # two tokens -> the latest place behind them
        for place in range(2, len(token_ids)):
            self._places[token_ids[place - 2] << 32 | token_ids[place - 1]] = place
        self._length = len(token_ids)
        self._source = self._find(token_ids)  # place of a token like the next one
        self._run = 0  # hits in a row that led there
        self._hit_rate = 0.5

    @property
    def confidence(self) -> float:
        """How likely the next token is the predicted one; 0 where none is."""
        return 0.0 if self._source == NO_PLACE else max(self._hit_rate, self._run / (self._run + 1))

    def extend(self, token_ids: list[int]) -> None:
        """Takes over those of the sequence's tokens that it does not know yet."""
        for place in range(self._length, len(token_ids)):
            token = token_ids[place]
            if place >= 2:
                self._places[token_ids[place - 2] << 32 | token_ids[place - 1]] = place
            self._length = place + 1
            if self._source != NO_PLACE:
                hit = token_ids[self._source] == token
                self._hit_rate += (hit - self._hit_rate) / MEMORY
                if hit:
                    self._source += 1
                    self._run += 1
                    continue
                self._run = 0
            self._source = self._find(token_ids)

    def draft(self, token_ids: list[int], most: int, least_confidence: float) -> list[int]:
        """The next tokens, at most `most`, as long as each is so likely to be reached and right. All of token_ids are
        known to it."""
        confidence = self.confidence
        if confidence == 0.0 or confidence < least_confidence:
            return []
        if least_confidence > 0.0 and confidence < 1.0:
            most = min(most, int(log(least_confidence) / log(confidence)))
        if most <= 0:
            return []
        copied = token_ids[self._source : self._source + most]
        period = len(copied)  # where it would copy what is still to come, that repeats
        return copied if period == most else (copied * (most // period + 1))[:most]

    def _find(self, token_ids: list[int]) -> int:
        """The place behind the earlier occurrence of the last two tokens that it knows."""
        end = self._length
        return NO_PLACE if end < 2 else self._places.get(token_ids[end - 2] << 32 | token_ids[end - 1], NO_PLACE)
