"""Drafts by somebody who knows the answers, and errs now and then."""

import random

from octavo.engine.speculation import Speculation
from octavo.engine.step_costs import StepCosts


class FreeRows(StepCosts):
    """Rows cost nothing."""

    def row_cost(self, sequences):
        return 0.0


class Guesses(Speculation):
    """answer_of(sequence): the output tokens that it will have; of a draft none, some or all are these."""

    def __init__(self, answer_of, most=5):
        super().__init__(most, 1000, FreeRows())
        self._answer_of = answer_of
        self._random = random.Random(0)

    def _confidence(self, sequence):
        return 1.0

    def _draft(self, sequence, most, least_confidence):
        known = sequence.num_output_tokens
        draft = self._answer_of(sequence)[known : known + self._random.randint(0, max(0, most))]
        if draft and self._random.random() < 0.5:
            place = self._random.randrange(len(draft))
            draft[place] = draft[place] - 1 if draft[place] else 1
        return draft
