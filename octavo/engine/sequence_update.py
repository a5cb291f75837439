"""What a step tells its caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

NO_TOKEN: Final = -1


class TokenLogprob(NamedTuple):
    """Log probability (natural) of one token under the model's own distribution."""

    logprob: float
    rank: int
    """From 1; 0 where it was not asked for"""
    top_ids: list[int]
    top_logprobs: list[float]


class BeamScore(NamedTuple):
    """What a finished beam was ranked by."""

    total: float
    """Sum of its tokens' logprobs, penalties included"""
    score: float
    """total / length ** length_penalty"""


@dataclass(slots=True)
class SequenceUpdate:
    """One new token of one sequence, or the end of a sequence without one. Of a beam search the first update, without
    a token, says that it has begun; the beams come whole, when all is known. Of a request that is
    told late, first tokens and ends are told of themselves, and others with them or where they are asked for."""

    request_id: str
    index: int
    """Which sequence of the request, from 0"""
    token_id: int
    """-1 where there is none: a search has begun (finish_reason None), the sequence ended with "error", or there are
    fewer beams than were asked for"""
    logprobs: TokenLogprob | None
    """Where the request asked for logprobs"""
    finish_reason: str | None
    """None while it runs; "stop", "length" or "error\""""
    stop_reason: int | str | None
    """The stop token id that ended it, or the stop string, which only beams know here; None for an end-of-sequence
    token"""
    num_cached_tokens: int
    """Prompt tokens that came from the prefix cache"""
    prompt_logprobs: list[TokenLogprob | None] | None = None
    """With a request's first update, where asked for: one entry per prompt token, the first one None"""
    error: str | None = None
    """What went wrong, where finish_reason is "error\""""
    beam: BeamScore | None = None
    """With the last token of a beam"""
    earlier: Sequence[int] = ()
    """Tokens before this one that no update has told of: those of a request that is told late"""


def token_logprob(logprob: Any, top: Any | None) -> TokenLogprob:
    """From a sampler's row: the chosen token's logprob, and the likeliest ones where they were asked for."""
    if top is None:
        return TokenLogprob(float(logprob), 0, [], [])
    ids = [int(token) for token in top.ids]
    return TokenLogprob(float(logprob), int(top.rank), ids, [float(value) for value in top.logprobs])
