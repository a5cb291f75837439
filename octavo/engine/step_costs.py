"""What rows beyond one a sequence cost a step, learnt from the steps that were run."""

from __future__ import annotations

from math import inf

MEMORY = 8
"""Steps over which times are averaged"""

PRIOR = 0.25
"""What a further row costs as long as nobody knows; what was learnt is forgotten towards it while nothing is tried"""

FORGETTING = 1024
"""Steps without further rows over which what was learnt is forgotten; so many that a few with them count for more"""

FRESH = 64
"""Steps with further rows after which one without is wanted: what it costs changes with the contexts"""


class StepCosts:
    """Times of steps by their number of sequences: with one row a sequence, and with more.

    One row waits for all weights, and a few more go along; of many, each costs its products. Where the one turns into
    the other depends on machine, model and contexts.
    """

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}  # seconds of a step with one row a sequence
        self._row: dict[int, float] = {}  # what row_cost() says
        self._count: dict[int, int] = {}  # what it is the mean of, the guess before the first one included
        self._age: dict[int, int] = {}  # steps with further rows since the last one without

    def row_cost(self, sequences: int) -> float:
        """What a further row costs a step of so many sequences, counted in the tokens that its time makes otherwise:
        it pays where its token is more likely than that. Infinite where a step without is to be timed first."""
        if self._age.get(sequences, FRESH) >= FRESH:
            return inf
        return self._known_cost(sequences)

    def record(self, sequences: int, further_rows: int, seconds: float) -> None:
        """A step of nothing but last tokens and `further_rows` took so long."""
        if further_rows == 0:
            self._record_plain(sequences, seconds)
        elif sequences in self._plain:
            self._age[sequences] += 1
            plain = self._plain[sequences]
            self._learn(sequences, min(max(seconds - plain, 0.0) / further_rows * sequences / plain, 2.0))

    def _learn(self, sequences: int, cost: float) -> None:
        before = self._known_cost(sequences)
        count = self._count[sequences] = min(self._count.get(sequences, 1) + 1, MEMORY)
        self._row[sequences] = before + (cost - before) / count

    def _known_cost(self, sequences: int) -> float:
        if sequences in self._row:
            return self._row[sequences]
        nearest = min(self._row, key=lambda known: abs(known - sequences), default=None)
        return PRIOR if nearest is None else self._row[nearest]

    def _record_plain(self, sequences: int, seconds: float) -> None:
        # A step that something else held up is not to look like all of them.
        before = self._plain.get(sequences, seconds)
        self._plain[sequences] = before + (min(seconds, 2 * before) - before) / MEMORY
        self._age[sequences] = 0
        if sequences in self._row:
            self._row[sequences] += (PRIOR - self._row[sequences]) / FORGETTING
