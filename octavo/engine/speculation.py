"""Speculation without a second model: drafts of next tokens, which a step computes along and sampling then confirms.

A row of logits does not depend on the rows beside it, and sampling depends on seed, sequence and position alone. So a
draft changes how many steps an answer takes, and never a token of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.engine.ngram_lookup import NgramLookup
from octavo.engine.request import Request, Sequence
from octavo.engine.step_costs import StepCosts
from octavo.engine.step_plan import NO_DRAFTS, Drafts, StepPlan

MARGIN = 0.05
"""What a token must be likelier than its row costs"""

SEQUENCES_PER_PAUSE = 4
"""Where no draft is worth its rows, whether any is gets asked again after a step for so many sequences"""


class Speculation:
    """Drafts for the sequences of one engine, as long as they pay."""

    def __init__(self, max_draft_tokens: int, costs: StepCosts | None = None) -> None:
        self._most = max_draft_tokens
        self._costs = costs or StepCosts()
        self._pause = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0

    def drafts(self, running: Iterable[Request]) -> Drafts:
        """Drafts for the next step, of sequences that lack nothing but their last token."""
        if self._pause:
            self._pause -= 1
            return NO_DRAFTS
        sequences = [
            sequence
            for request in running
            if request.beam_search is None and not request.pending
            for sequence in request.active
            if len(sequence.token_ids) - sequence.num_computed_tokens == 1
        ]
        least = self._costs.row_cost(len(sequences)) + MARGIN
        drafts = {}
        if least < 1.0:
            for sequence in sequences:
                draft = self._draft(sequence, least)
                if draft:
                    drafts[sequence] = draft
        if not drafts:
            self._pause = len(sequences) // SEQUENCES_PER_PAUSE
        return drafts

    def _draft(self, sequence: Sequence, least_confidence: float) -> list[int]:
        token_ids = sequence.token_ids
        if sequence.lookup is None:
            sequence.lookup = NgramLookup(token_ids)
        sequence.lookup.extend(token_ids)
        # All drafted tokens and the one after them may turn out right, and its KV is not wanted.
        most = min(self._most, sequence.max_len - len(token_ids) - 1)
        return sequence.lookup.draft(token_ids, most, least_confidence)

    def learn(self, plan: StepPlan, seconds: float) -> None:
        """What a step took, with all that drafts cost it."""
        further = sum(map(len, plan.drafts.values()))
        self.drafted_tokens += further
        if sum(plan.counts) == len(plan.sequences) + further:
            self._costs.record(len(plan.sequences), further, seconds)
