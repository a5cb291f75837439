"""When sequences that compute a token a step next need room: known by step, so that no step has to ask each of them."""

from __future__ import annotations

from collections.abc import Iterable

from octavo.engine.request import Sequence


class RoomCalendar:
    """Of sequences that compute one token a step, all of them in every step, from the next step on."""

    def __init__(self, sequences: Iterable[Sequence]) -> None:
        self._step = 0
        self._due: dict[int, list[Sequence]] = {}
        for sequence in sequences:
            self.put(sequence)

    def put(self, sequence: Sequence) -> None:
        """Notes the step whose token no longer lies below the sequence's writable_end."""
        step = self._step + sequence.writable_end - sequence.num_computed_tokens
        self._due.setdefault(step, []).append(sequence)

    def due(self) -> list[Sequence]:
        """Those that need room before this step; it stays this step until advance()."""
        return self._due.pop(self._step, [])

    def advance(self) -> None:
        """The step is planned: the next one is in question from now on."""
        self._step += 1
