"""The plan of a step: which sequences compute how many tokens, and what budget is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from octavo.engine.request import Sequence
from octavo.engine.room_calendar import RoomCalendar

if TYPE_CHECKING:
    from octavo.engine.step_builder import BuiltStep

Drafts = Mapping[Sequence, list[int]]
"""What the next tokens of sequences may be"""

NO_DRAFTS: Final[Drafts] = {}


class StepPlan:
    """What one step computes: counts[i] tokens of sequences[i], from its num_computed_tokens on. The last ones may be a
    draft, of tokens that the sequence does not have yet.

    A plan of only last tokens is that of the next step, too, until requests come or go.
    """

    __slots__ = ("built", "calendar", "counts", "drafts", "only_last_tokens", "rows_left", "sequences", "tokens_left")

    def __init__(self, tokens: int, rows: int) -> None:
        self.sequences: list[Sequence] = []
        self.counts: list[int] = []
        self.drafts: dict[Sequence, list[int]] = {}
        self.only_last_tokens = True
        """Every sequence computes the one token that it sampled last, and samples from it"""
        self.tokens_left = tokens
        self.rows_left = rows
        """Rows whose logits may still be asked for"""
        self.calendar: RoomCalendar | None = None
        """Where it goes on for a second step"""
        self.built: BuiltStep | None = None
        """The step that was built from it last"""

    def chunk(self, sequence: Sequence) -> int:
        """How many of a sequence's missing tokens the budgets allow now."""
        missing = len(sequence.token_ids) - sequence.num_computed_tokens
        count = min(missing, self.tokens_left)
        if sequence.request.scores_prompt:
            return min(count, self.rows_left)
        if count == missing and self.rows_left == 0:
            return count - 1
        return count

    def fitting(self, draft: list[int]) -> list[int]:
        """As much of a draft as the budgets still allow."""
        return draft[: max(0, min(self.tokens_left, self.rows_left))]

    def add(self, sequence: Sequence, count: int) -> None:
        """Plans `count` tokens of a sequence and spends the budgets."""
        request = sequence.request
        self.sequences.append(sequence)
        self.counts.append(count)
        self.tokens_left -= count
        if request.prompt_logprobs is not None and request.scores_prompt:
            self.rows_left -= count
            self.only_last_tokens = False
        elif sequence.num_computed_tokens + count == len(sequence.token_ids):
            self.rows_left -= 1
        if count != 1 or request.pending:
            self.only_last_tokens = False

    def add_draft(self, place: int, draft: list[int]) -> None:
        """Plans a draft behind the last token of an entry."""
        self.drafts[self.sequences[place]] = draft
        self.counts[place] += len(draft)
        self.tokens_left -= len(draft)
        self.rows_left -= len(draft)
        self.only_last_tokens = False

    def cut(self, length: int) -> None:
        """Takes back all but the first `length` entries. Rows stay spent: this step asks for a few less."""
        self.tokens_left += sum(self.counts[length:])
        del self.sequences[length:], self.counts[length:]

    def hold_back(self, first: int) -> None:
        """Takes back the last token of all entries from `first` on, which all reach their sequence's end."""
        entries = [(seq, count - 1) for seq, count in zip(self.sequences[first:], self.counts[first:], strict=True)]
        self.tokens_left += len(entries)
        self.rows_left += len(entries)
        self.sequences[first:] = [sequence for sequence, count in entries if count]
        self.counts[first:] = [count for _, count in entries if count]
