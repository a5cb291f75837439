"""Beam search: which continuations live on, which are finished, and when the search ends.

The choices are those of transformers' generate(num_beams=beam_width). One step, at which every running beam has
`length` tokens of output once it has grown:

 1. A candidate is a running beam and a next token. It is ranked by its total: the sum of its tokens' logprobs. Equal
    totals go by beam, then by token id.
 2. It is finished by an end-of-sequence or stop token, by a stop string, or by reaching the greatest length. Of the
    first beam_width candidates, the finished ones are kept with the score total / length ** length_penalty, where
    length counts the token that ended it; finished ones below rank beam_width are dropped.
 3. The first beam_width candidates that are not finished run on.
 4. Of all finished beams the beam_width best stay.
 5. The search ends where no beam runs on, or where there are beam_width finished ones and early_stopping is True, or
    the best running total / length ** length_penalty is not above the worst finished score. There, length is the
    greatest possible one where early_stopping is "never" and length_penalty is above 0, else that of now.

Totals and scores are sums of float32 logprobs in double precision.
"""

from __future__ import annotations

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Protocol, Self

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.request import Sequence
from octavo.engine.sequence_update import TokenLogprob

IMPOSSIBLE = -9999.0
"""Logprobs from here down are those of tokens that cannot be chosen"""


class StopSearch(Protocol):
    """Looks for stop strings in the text of one beam; never changes."""

    @property
    def matched(self) -> str | None:
        """The stop string that the text ends in, if any."""
        ...

    def extended(self, token_id: int) -> Self:
        """The same for one token more."""
        ...


@dataclass(slots=True)
class Beam:
    """A running beam."""

    sequence: Sequence
    total: float
    logprobs: list[TokenLogprob]
    """Of its output, where they were asked for"""
    text: StopSearch | None


@dataclass(frozen=True, slots=True)
class Extension:
    """A candidate that was chosen."""

    parent: Beam
    token_id: int
    total: float
    text: StopSearch | None


@dataclass(slots=True)
class FinishedBeam:
    """A beam that has ended."""

    token_ids: list[int]
    """Output only"""
    total: float
    score: float
    finish_reason: str
    stop_reason: int | str | None
    logprobs: list[TokenLogprob]


class BeamSearch:
    """The search of one request."""

    def __init__(self, params: BeamSearchParams, leader: Sequence, text: StopSearch | None) -> None:
        self.params = params
        self.width = params.beam_width
        self.beams = [Beam(leader, 0.0, [], text)]
        """Running, best first"""
        self.finished: list[FinishedBeam] = []
        """Best first, at most `width`"""
        self.done = False
        self.announced = False
        """Whether the caller has been told that it has begun"""
        # Of one beam: `width` may run on, and no token but these ends it sooner. A stop string can end any.
        self.num_candidates = len(leader.stop_ids) + (self.width if text is None else 2 * self.width)

    def choose(
        self, token_ids: Series[Series[int]], logprobs: Series[Series[float]]
    ) -> tuple[list[Extension], list[tuple[Extension, FinishedBeam]]]:
        """What runs on and what has ended now, from the likeliest tokens of every running beam, best first.

        Raises ValueError where nothing runs on and nothing has ever been finished.
        """
        ranked = sorted(
            (-(beam.total + logprob), number, place)
            for number, beam in enumerate(self.beams)
            for place, logprob in enumerate(logprobs[number])
            if logprob > IMPOSSIBLE
        )
        running: list[Extension] = []
        ended: list[tuple[Extension, FinishedBeam]] = []
        for rank, (negated, number, place) in enumerate(ranked):
            if len(running) == self.width and rank >= self.width:
                break
            extension = self._extend(self.beams[number], token_ids[number][place], -negated)
            finished = self._finish(extension)
            if finished is not None:
                if rank < self.width:
                    ended.append((extension, finished))
            elif len(running) < self.width:
                running.append(extension)
        self._keep_best([finished for _, finished in ended])
        self.done = self._is_done(running)
        if self.done and not self.finished:
            raise ValueError("no token can be chosen: its logits are not numbers, or nothing is allowed")
        return running, ended

    def _extend(self, beam: Beam, token_id: int, total: float) -> Extension:
        return Extension(beam, token_id, total, None if beam.text is None else beam.text.extended(token_id))

    def _finish(self, extension: Extension) -> FinishedBeam | None:
        """The finished beam that a candidate is, if it is one."""
        sequence, token = extension.parent.sequence, extension.token_id
        length = sequence.num_output_tokens + 1
        reason = "stop"
        stop_reason: int | str | None = None
        if token in sequence.stop_ids and len(sequence.token_ids) + 1 >= sequence.min_len:
            stop_reason = token if token in self.params.stop_token_ids else None
        elif extension.text is not None and extension.text.matched is not None:
            stop_reason = extension.text.matched
        elif len(sequence.token_ids) + 1 >= sequence.max_len:
            reason = "length"
        else:
            return None
        output = sequence.token_ids[sequence.request.num_prompt_tokens :]
        score = extension.total / float(length) ** self.params.length_penalty
        return FinishedBeam([*output, token], extension.total, score, reason, stop_reason, [])

    def _keep_best(self, ended: list[FinishedBeam]) -> None:
        merged = sorted(self.finished + ended, key=lambda beam: -beam.score)
        self.finished = merged[: self.width]

    def _is_done(self, running: list[Extension]) -> bool:
        if not running:
            return True
        early, penalty = self.params.early_stopping, self.params.length_penalty
        if len(self.finished) < self.width:
            return False
        if early is True:
            return True
        sequence = running[0].parent.sequence
        length = sequence.num_output_tokens + 1
        if early == "never" and penalty > 0:
            length = sequence.max_len - sequence.request.num_prompt_tokens
        best: float = running[0].total / float(length) ** penalty
        return best <= self.finished[-1].score
