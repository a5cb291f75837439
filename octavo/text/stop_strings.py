"""Finding stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def check_stop_strings(stop: Sequence[str]) -> tuple[str, ...]:
    """The stop strings as a tuple; ValueError for an empty one, TypeError for what is not text."""
    if isinstance(stop, str):
        raise TypeError(f"stop must be a sequence of strings, not the string {stop!r}")
    for index, text in enumerate(stop):
        if not isinstance(text, str):
            raise TypeError(f"stop[{index}] is {text!r}; it must be a string")
        if not text:
            raise ValueError(f'stop[{index}] is ""; an empty stop string would end every answer at once')
        check_no_surrogates(text, f"stop[{index}]")
    return tuple(stop)


def check_no_surrogates(text: str, name: str) -> None:
    """ValueError where `text` has a lone surrogate: it is no Unicode text and has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise ValueError(
            f"{name} has the lone surrogate U+{code:04X} at character {error.start}, which is not valid text"
        ) from None


class StopMatcher:
    """An Aho-Corasick automaton over the stop strings, fed letter by letter.

    The match that is complete first wins; of those that end at the same letter, the longest. So the result
    does not depend on how the text was cut into pieces, and every letter costs the same, whatever came
    before.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._ending: list[str | None] = [None]
        for text in check_stop_strings(stop):
            self._insert(text)
        self._fall = self._link()
        self._state = 0

    @property
    def held(self) -> int:
        """Length of the longest end of the text so far that is a beginning of a stop string."""
        return self._depth[self._state]

    def feed(self, text: str) -> tuple[int, str] | None:
        """Take more text; (end, stop string) if one is complete at text[:end]. Feed nothing after a match."""
        state, following, fall = self._state, self._next, self._fall
        for index, letter in enumerate(text):
            while letter not in following[state] and state:
                state = fall[state]
            state = following[state].get(letter, 0)
            found = self._ending[state]
            if found is not None:
                self._state = state
                return index + 1, found
        self._state = state
        return None

    def _insert(self, text: str) -> None:
        state = 0
        for letter in text:
            if letter not in self._next[state]:
                self._next[state][letter] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._ending.append(None)
            state = self._next[state][letter]
        self._ending[state] = text

    def _link(self) -> list[int]:
        """For each state the longest proper end of its text that is a state too; ends are inherited along the
        way.
        """
        fall = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for letter, child in self._next[state].items():
                target = fall[state]
                while letter not in self._next[target] and target:
                    target = fall[target]
                fall[child] = self._next[target].get(letter, 0)
                if self._ending[child] is None:
                    self._ending[child] = self._ending[fall[child]]
                queue.append(child)
        return fall
