"""What a request gives back, with the names that vLLM's users know."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Logprob:
    """A token's log-probability in nats under the model's raw distribution, and its rank there (1 is the
    likeliest)."""

    logprob: float
    rank: int | None
    decoded_token: str | None


TokenLogprobs = dict[int, Logprob]
"""One position: token id -> Logprob. Holds the chosen token first, then the most likely ones."""


@dataclass(slots=True)
class CompletionOutput:
    """One sequence of a request."""

    index: int
    """From 0 to n - 1; of beams and of the best of more answers, the best one first"""
    text: str
    """All text so far; cut at a stop string. Complete characters only while the sequence runs"""
    token_ids: list[int]
    cumulative_logprob: float | None
    """Sum over the chosen tokens; None where no logprobs were asked for. Of a beam always, and after penalties"""
    logprobs: list[TokenLogprobs] | None
    """One entry per token of token_ids; None where not asked for"""
    finish_reason: str | None = None
    """"stop", "length", "abort" or "error"; None while it runs"""
    stop_reason: int | str | None = None
    """The stop string or stop token id that ended it; None for the end-of-sequence token and for other
    reasons"""
    score: float | None = None
    """Of a beam: cumulative_logprob / number of tokens ** length_penalty"""
    delta: str = ""
    """Streams only: the text since this stream's last output. The deltas of a stream join to its last
    `text`"""

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass(slots=True)
class RequestMetrics:
    """Numbers of one request; times in seconds."""

    arrival_time: float
    """time.time() when the request was added"""
    num_cached_tokens: int = 0
    """Prompt tokens whose KV came from the prefix cache"""
    time_to_first_token: float | None = None
    """From arrival to the first sampled token"""
    elapsed: float | None = None
    """From arrival to the end; None while it runs"""
    num_output_tokens: int = 0
    """Of all sequences"""


@dataclass(slots=True)
class RequestOutput:
    """All that is known of a request: final from LLM.generate, cumulative from a stream."""

    request_id: str
    prompt: str | None
    """The prompt's text; None where it was given as token ids"""
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None
    """One entry per prompt token, the first one None; None where not asked for"""
    outputs: list[CompletionOutput]
    """One per sequence, by index"""
    finished: bool
    metrics: RequestMetrics = field(default_factory=lambda: RequestMetrics(arrival_time=0.0))
    error: str | None = None
    """What went wrong with this request alone, where its finish_reason is "error"; LLM.generate only, as streams
    raise it"""

    @property
    def num_cached_tokens(self) -> int:
        """Prompt tokens whose KV came from the prefix cache."""
        return self.metrics.num_cached_tokens
