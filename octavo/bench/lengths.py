"""Lengths and arrivals of requests like those of the PagedAttention paper's traces.

The paper publishes the means of ShareGPT and Alpaca, not the lengths. Here they are log-normal: skewed, positive, and
fixed by a mean and a coefficient of variation. The latter are chosen so that requests in flight hold as many
tokens on average as the paper's batch sizes imply; docs/memory.md has the arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int64]

MAX_LENGTH = 2048
"""Longest prompt and output of OPT-13B, in tokens"""


@dataclass(frozen=True, slots=True)
class LengthDistribution:
    """Log-normal lengths of prompts and outputs; prompt + output is at most MAX_LENGTH."""

    name: str
    prompt_mean: float
    prompt_variation: float
    """Standard deviation over mean, before the cut at MAX_LENGTH"""
    output_mean: float
    output_variation: float

    def sample(self, count: int, seed: int) -> Trace:
        """`count` requests, the same for the same seed, without arrival times."""
        rng = np.random.default_rng(seed)
        prompts = _lengths(rng, count, self.prompt_mean, self.prompt_variation, MAX_LENGTH // 2)
        outputs = _lengths(rng, count, self.output_mean, self.output_variation, MAX_LENGTH // 2)
        return Trace(prompts, outputs, np.zeros(count))


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival."""

    prompts: Lengths
    """Tokens of each prompt"""
    outputs: Lengths
    """Tokens that each request will produce, which only an oracle knows beforehand"""
    arrivals: npt.NDArray[np.float64]
    """Seconds from the start"""

    def __len__(self) -> int:
        return len(self.prompts)

    def arriving(self, rate: float, seed: int) -> Trace:
        """The same requests as a Poisson process of `rate` requests a second."""
        gaps = np.random.default_rng(seed + 1).exponential(1.0 / rate, len(self))
        return Trace(self.prompts, self.outputs, np.cumsum(gaps))

    def scaled(self, factor: float) -> Trace:
        """The same requests with lengths times `factor`, at least one token each."""
        return Trace(_scale(self.prompts, factor), _scale(self.outputs, factor), self.arrivals)


SHAREGPT = LengthDistribution("sharegpt", 161.31, 1.5, 337.99, 1.0)
ALPACA = LengthDistribution("alpaca", 19.31, 0.6, 58.45, 1.4)
DISTRIBUTIONS = {each.name: each for each in (SHAREGPT, ALPACA)}


def _lengths(rng: np.random.Generator, count: int, mean: float, variation: float, limit: int) -> Lengths:
    variance = float(np.log1p(variation**2))
    location = _location(mean, variance, limit)
    lengths: Lengths = np.clip(np.rint(rng.lognormal(location, variance**0.5, count)), 1, limit).astype(np.int64)
    return lengths


def _location(mean: float, variance: float, limit: int) -> float:
    """The log-normal's location that has `mean` after the cut at `limit`, by bisection."""
    low, high = 0.0, float(np.log(limit))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _cut_mean(middle, variance, limit) < mean else (low, middle)
    return low


def _cut_mean(location: float, variance: float, limit: int) -> float:
    """The mean of min(X, limit) for a log-normal X."""
    deviation = variance**0.5
    bound = (np.log(limit) - location) / deviation
    cumulative = NormalDist().cdf
    below = float(np.exp(location + variance / 2)) * cumulative(float(bound) - deviation)
    return below + limit * (1 - cumulative(float(bound)))


def _scale(lengths: Lengths, factor: float) -> Lengths:
    scaled: Lengths = np.maximum(1, np.rint(lengths * factor)).astype(np.int64)
    return scaled
