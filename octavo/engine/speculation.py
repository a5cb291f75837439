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

CAUTION, MARGIN = 1.25, 0.05
"""A drafted token must be so many times as likely as its row costs, and so much more: the step after is planned anew"""

LOGITS_BYTES = 3 * 2**20
"""Memory for the rows of logits of all drafts of a step; those of one sequence have it in any case"""

SEQUENCES_PER_PAUSE = 4
"""Where no draft is worth its rows, whether any is gets asked again after a step for so many sequences"""


class Speculation:
    """Drafts for the sequences of one engine, as long as they pay."""

    def __init__(self, max_draft_tokens: int, vocab_size: int, costs: StepCosts | None = None) -> None:
        self._most = max_draft_tokens
        self._most_rows = max(max_draft_tokens, LOGITS_BYTES // (4 * vocab_size))
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
        least = CAUTION * self._costs.row_cost(len(sequences)) + MARGIN
        drafts = self._most_confident(sequences, least) if least < 1.0 else {}
        if not drafts:
            self._pause = len(sequences) // SEQUENCES_PER_PAUSE
        return drafts

    def _most_confident(self, sequences: list[Sequence], least: float) -> dict[Sequence, list[int]]:
        """Drafts of tokens that are at least so likely, the surest sequences first, until there are rows enough."""
        drafts = {}
        confidences = [(self._confidence(sequence), place) for place, sequence in enumerate(sequences)]
        rows_left = self._most_rows
        for confidence, place in sorted(confidences, reverse=True):
            if confidence < least or not rows_left:
                break
            sequence = sequences[place]
            # All drafted tokens and the one after them may turn out right, and its KV is not wanted.
            room = sequence.max_len - len(sequence.token_ids) - 1
            draft = self._draft(sequence, min(self._most, room, rows_left), least)
            if draft:
                drafts[sequence] = draft
                rows_left -= len(draft)
        return drafts

    def _confidence(self, sequence: Sequence) -> float:
        if sequence.lookup is None:
            sequence.lookup = NgramLookup(sequence.token_ids)
        sequence.lookup.extend(sequence.token_ids)
        return sequence.lookup.confidence

    def _draft(self, sequence: Sequence, most: int, least_confidence: float) -> list[int]:
        assert sequence.lookup is not None
        return sequence.lookup.draft(sequence.token_ids, most, least_confidence)

    def learn(self, plan: StepPlan, seconds: float) -> None:
        """What a step took, with all that drafts cost it."""
        further = sum(map(len, plan.drafts.values()))
        self.drafted_tokens += further
        if sum(plan.counts) == len(plan.sequences) + further:
            self._costs.record(len(plan.sequences), further, seconds)


def new_speculation(max_draft_tokens: int, vocab_size: int) -> Speculation | None:
    """None where there are to be no drafts."""
    return Speculation(max_draft_tokens, vocab_size) if max_draft_tokens else None
