"""What the sampler reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LOGPROB_FLOOR = -9999.0
"""Reported for logprobs that are lower, or -inf."""
NO_TOKEN = -1
"""The id of a row in which no token is possible."""


@dataclass(frozen=True, slots=True)
class TopLogprobs:
    """The most likely tokens of one row, by the model's raw distribution, and where the chosen one
    stands."""

    ids: npt.NDArray[np.int32]
    """[N] descending by logprob, equal ones by id; fewer than N only where the vocabulary is smaller."""
    logprobs: npt.NDArray[np.float32]
    """[N] at least LOGPROB_FLOOR."""
    rank: int
    """1 + the number of tokens more likely than the chosen one; 0 where there is none."""


@dataclass(slots=True)
class SampledTokens:
    """One token for each of L rows."""

    token_ids: npt.NDArray[np.int32]
    """[L] NO_TOKEN where every token was forbidden or had no finite logit."""
    logprobs: npt.NDArray[np.float32]
    """[L] raw logprob of the token, at least LOGPROB_FLOOR; 0 where the row did not ask for logprobs."""
    tops: list[TopLogprobs | None]
    """[L] None where the row did not ask for logprobs."""


@dataclass(frozen=True, slots=True)
class LogprobArrays:
    """The arrays that a sampler fills for L rows with up to `top` alternatives."""

    logprobs: npt.NDArray[np.float32]
    ranks: npt.NDArray[np.int32]
    top_ids: npt.NDArray[np.int32]
    top_logprobs: npt.NDArray[np.float32]

    @classmethod
    def empty(cls, num_rows: int, top: int) -> LogprobArrays:
        """Zeros: what rows without logprobs keep."""
        return cls(
            np.zeros(num_rows, np.float32),
            np.zeros(num_rows, np.int32),
            np.zeros((num_rows, top), np.int32),
            np.zeros((num_rows, top), np.float32),
        )

    def row(self, index: int, top: int) -> TopLogprobs:
        """The first `top` alternatives of one row."""
        return TopLogprobs(self.top_ids[index, :top], self.top_logprobs[index, :top], int(self.ranks[index]))
