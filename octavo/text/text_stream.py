"""The text of one answer as it grows, cut at the first stop string."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.stop_strings import StopMatcher


class TextStream:
    """Turns generated token ids into text deltas that never show a stop string or what follows it.

    Held back is only what may still become a stop string (or is an incomplete character). The joined deltas
    equal `text`, which equals the decoded whole cut at the first stop string, however the tokens fall. Only
    generated text is searched, never the prompt.
    """

    def __init__(
        self, detokenizer: IncrementalDetokenizer, stop: Sequence[str] = (), include_stop: bool = False
    ) -> None:
        """`include_stop` keeps the stop string itself at the end of the text. ValueError for an empty stop
        string.
        """
        self._detokenizer = detokenizer
        self._matcher = StopMatcher(stop) if stop else None
        self._include_stop = include_stop
        self._held = ""
        self._parts: list[str] = []
        self._finished = False
        self.matched_stop: str | None = None
        """the stop string that ended the text"""

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; later tokens are ignored."""
        return self.matched_stop is not None

    @property
    def text(self) -> str:
        """All deltas so far, joined."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    def extend(self, token_ids: Sequence[int]) -> str:
        """Take the next generated tokens; the text that is now certain, often none."""
        if self._finished or self.matched_stop is not None:
            return ""
        return self._emit(self._detokenizer.extend(token_ids))

    def finish(self) -> str:
        """The end of generation: whatever was held back. More calls give nothing."""
        if self._finished or self.matched_stop is not None:
            return ""
        delta = self._emit(self._detokenizer.finish())
        self._finished = True
        if self._held and self.matched_stop is None:
            self._parts.append(self._held)
            delta, self._held = delta + self._held, ""
        return delta

    def _emit(self, new: str) -> str:
        if not new:
            return ""
        if self._matcher is None:
            self._parts.append(new)
            return new
        found = self._matcher.feed(new)
        text = self._held + new
        if found is None:
            certain = len(text) - self._matcher.held
        else:
            end, stop = found
            self.matched_stop = stop
            certain = len(self._held) + end - (0 if self._include_stop else len(stop))
        self._held = "" if found else text[certain:]
        delta = text[:certain]
        if delta:
            self._parts.append(delta)
        return delta
