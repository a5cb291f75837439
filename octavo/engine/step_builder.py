"""Turns a plan into the arrays of a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.engine.block_table import Int32Array
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request, Sequence
from octavo.engine.step import Step
from octavo.engine.step_plan import StepPlan

NO_COPIES = np.empty((0, 2), np.int32)
NO_IDS = np.empty(0, np.int32)
AHEAD = 32
"""Steps whose lengths are computed at once, where a plan goes on"""


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of logits that score prompt tokens: logits row first_row + i scores prompt token first_token +
    i."""

    request: Request
    first_row: int
    first_token: int
    count: int


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft, and the rows of logits that tell whether it is right: first_row + i is behind i tokens of it."""

    sequence: Sequence
    draft: list[int]
    first_row: int

    def is_right(self, depth: int) -> bool:
        """Whether the sequence goes on and its last token is the draft's number `depth`."""
        sequence = self.sequence
        return not sequence.finished and depth < len(self.draft) and sequence.token_ids[-1] == self.draft[depth]


@dataclass(slots=True)
class BuiltStep:
    """A step, and what its rows of logits are for."""

    step: Step
    sampled: list[Sequence]
    """Sequences that get a token"""
    sample_rows: list[int] | None
    """The logits row of each; None where row i is that of sampled[i], for all rows"""
    forking: list[Request]
    """New requests whose siblings sample from their leader's row and fork"""
    prompt_rows: list[PromptRows]
    beams: list[Sequence]
    """Beams that choose their next tokens; those of a request come together"""
    beam_rows: list[int]
    """The logits row of each"""
    states: tuple[Any, ...]
    """The sampler's, of those that get a token"""
    drafted: list[Drafted]
    sampled_ids: Int32Array = field(default_factory=lambda: NO_IDS)
    """The token that each got"""
    lengths: Iterator[Int32Array] = field(default_factory=lambda: iter(()))
    """seq_lens of the next steps, where the plan goes on"""
    longest: int = 0
    """The highest of seq_lens, where the plan may go on"""


class StepBuilder:
    """Builds steps from plans and from the manager's block tables and copies."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._size = manager.block_size
        self._counting = np.arange(manager.rows.max_rows + 1, dtype=np.int32)
        self._counting.flags.writeable = False
        self._steps_ahead = np.arange(1, AHEAD + 1, dtype=np.int32)[:, np.newaxis]

    def build(self, plan: StepPlan) -> BuiltStep:
        """The step of a plan that has at least one entry. Takes the planned copies."""
        if plan.built is not None:
            plan.built.step = self._next_step(plan.built)
        else:
            plan.built = self._build_first(plan)
        return plan.built

    def _next_step(self, built: BuiltStep) -> Step:
        """One more token for each sequence of a step of only last tokens. Nothing is asked of the sequences: what they
        sampled is known, and all are one token longer."""
        last = built.step
        seq_lens = next(built.lengths, None)
        if seq_lens is None:
            built.lengths = iter(last.seq_lens + self._steps_ahead)
            seq_lens = next(built.lengths)
        built.longest += 1
        num_blocks, tables = -(-built.longest // self._size), last.block_tables
        if self._manager.rows.have_changed or num_blocks != tables[0].shape[1]:
            tables = self._manager.rows.gather(built.sampled, num_blocks)
        return Step(
            token_ids=built.sampled_ids,
            positions=last.seq_lens,
            query_start_loc=last.query_start_loc,
            seq_lens=seq_lens,
            block_tables=tables,
            logits_rows=last.logits_rows,
            copies=self._copies(),
        )

    def _build_first(self, plan: StepPlan) -> BuiltStep:
        sequences = plan.sequences
        starts = [sequence.num_computed_tokens for sequence in sequences]
        if plan.only_last_tokens:
            return self._build_decode(sequences, starts)
        return self._build_mixed(plan, starts)

    def _build_decode(self, sequences: list[Sequence], starts: list[int]) -> BuiltStep:
        """One token each, the last one, and all sampled.

        Between native steps that use up the caches, what counts is how much code and memory is touched: 64 additions
        in Python take a fifth of the time of the first one in numpy.
        """
        count, longest = len(sequences), max(starts) + 1
        step = Step(
            token_ids=np.array([sequence.token_ids[-1] for sequence in sequences], np.int32),
            positions=np.array(starts, np.int32),
            query_start_loc=self._counting[: count + 1],
            seq_lens=np.array([start + 1 for start in starts], np.int32),
            block_tables=self._manager.rows.gather(sequences, -(-longest // self._size)),
            logits_rows=self._counting[:count],
            copies=self._copies(),
        )
        return BuiltStep(step, sequences, None, [], [], [], [], _states(sequences), [], longest=longest)

    def _build_mixed(self, plan: StepPlan, starts: list[int]) -> BuiltStep:
        """Any chunks."""
        counts = np.array(plan.counts, np.int32)
        first = np.array(starts, np.int32)
        query_start_loc = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=query_start_loc[1:])
        total = int(query_start_loc[-1])
        token_ids: list[int] = []
        for sequence, start, count in zip(plan.sequences, starts, plan.counts, strict=True):
            token_ids += sequence.token_ids[start : start + count]
            if sequence in plan.drafts:
                token_ids += plan.drafts[sequence]
        seq_lens = first + counts
        built = _wanted_rows(plan, starts)
        step = Step(
            token_ids=np.array(token_ids, np.int32),
            positions=np.arange(total, dtype=np.int32) + np.repeat(first - query_start_loc[:-1], counts),
            query_start_loc=query_start_loc,
            seq_lens=seq_lens,
            block_tables=self._manager.rows.gather(plan.sequences, -(-int(seq_lens.max()) // self._size)),
            logits_rows=np.array(built.rows, np.int32),
            copies=self._copies(),
        )
        return BuiltStep(
            step,
            built.sampled,
            None if built.sample_rows == [*range(len(built.rows))] else built.sample_rows,
            built.forking,
            built.prompt_rows,
            built.beams,
            built.beam_rows,
            _states(built.sampled),
            built.drafted,
        )

    def _copies(self) -> Int32Array:
        copies = self._manager.take_copies()
        return np.array(copies, np.int32) if copies else NO_COPIES


def _states(sequences: list[Sequence]) -> tuple[Any, ...]:
    return tuple([sequence.state for sequence in sequences])


class _WantedRows:
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.sampled: list[Sequence] = []
        self.sample_rows: list[int] = []
        self.forking: list[Request] = []
        self.prompt_rows: list[PromptRows] = []
        self.beams: list[Sequence] = []
        self.beam_rows: list[int] = []
        self.drafted: list[Drafted] = []

    def add_prompt(self, request: Request, first_position: int, end: int, first_row: int) -> None:
        """Rows of positions [first_position, end) score the tokens after them, but for those that are
        known."""
        entries = request.prompt_logprobs
        assert entries is not None
        begin = max(first_position, len(entries) - 1)
        stop = min(end, request.num_prompt_tokens - 1)
        if begin < stop:
            self.prompt_rows.append(PromptRows(request, len(self.rows), begin + 1, stop - begin))
            self.rows += range(first_row + begin - first_position, first_row + stop - first_position)

    def add_beam(self, sequence: Sequence, row: int) -> None:
        """A beam's last row."""
        self.beams.append(sequence)
        self.beam_rows.append(len(self.rows))
        self.rows.append(row)

    def add_sampled(self, sequence: Sequence, row: int) -> None:
        """A sequence's last row; a new request's siblings sample from it too."""
        request = sequence.request
        self.sampled.append(sequence)
        self.sample_rows.append(len(self.rows))
        if request.pending and not sequence.num_output_tokens:
            self.forking.append(request)
            self.sampled += request.pending
            self.sample_rows += [len(self.rows)] * len(request.pending)
        self.rows.append(row)

    def add_drafted(self, sequence: Sequence, draft: list[int], row: int) -> None:
        """A sequence's last row, and those of its draft behind it."""
        self.drafted.append(Drafted(sequence, draft, len(self.rows)))
        self.add_sampled(sequence, row)
        self.rows += range(row + 1, row + 1 + len(draft))


def _wanted_rows(plan: StepPlan, starts: list[int]) -> _WantedRows:
    wanted = _WantedRows()
    row = 0
    for sequence, start, count in zip(plan.sequences, starts, plan.counts, strict=True):
        end = start + count
        if sequence.request.scores_prompt:
            wanted.add_prompt(sequence.request, start, end, row)
        if end < len(sequence.token_ids):
            pass
        elif sequence in plan.drafts:
            wanted.add_drafted(sequence, plan.drafts[sequence], row)
        elif sequence.request.beam_search is not None:
            wanted.add_beam(sequence, row + count - 1)
        else:
            wanted.add_sampled(sequence, row + count - 1)
        row += count
    return wanted
