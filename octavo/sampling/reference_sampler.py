"""The sampler in numpy: the oracle of the native one, and what runs where that is not built.

It follows the steps of octavo.sampling in order, with full sorts. Its results are the native ones bit for
bit: the float part uses the same elementwise float32 operations, the rest is integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from octavo.sampling.logprobs import LOGPROB_FLOOR, NO_TOKEN, LogprobArrays
from octavo.sampling.philox import random_bits
from octavo.sampling.sampling_state import SamplingState, inverse_temperature

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_MASS_SCALE = 2.0**40
_SMALLEST_WEIGHT = np.float32(2.0**-40)
_f32 = np.float32


class ReferenceSampler:
    """Fills the same arrays as the native BatchSampler."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def sample(
        self,
        logits: FloatArray,
        states: Sequence[SamplingState],
        numbers: npt.NDArray[np.int32] | None,
        token_ids: npt.NDArray[np.int32],
        arrays: LogprobArrays | None,
    ) -> None:
        """logits [R, vocab_size]; numbers [L]: the row of each state, None: all in order; arrays may be None where no
        state asks for logprobs."""
        rows = logits if numbers is None else logits[numbers]
        for index, (row, state) in enumerate(zip(rows, states, strict=True)):
            token_ids[index] = choose(edited(row, state), state)
            if state.params.logprobs is not None and arrays is not None:
                report(row, int(token_ids[index]), state.params.logprobs, index, arrays)

    def score(self, logits: FloatArray, token_ids: npt.NDArray[np.int32], arrays: LogprobArrays) -> None:
        """Logprobs, ranks and the most likely tokens for given ids [L]."""
        for index, row in enumerate(logits):
            report(row, int(token_ids[index]), arrays.top_ids.shape[1], index, arrays)

    def continuations(
        self,
        logits: FloatArray,
        states: list[SamplingState],
        top_ids: npt.NDArray[np.int32],
        top_logprobs: FloatArray,
    ) -> None:
        """The likeliest next tokens [L, top] of beams."""
        top = top_ids.shape[1]
        for index, (row, state) in enumerate(zip(logits, states, strict=True)):
            # Where nothing is edited the logits rank, and logprobs that round to the same do not make ties.
            ranked = clean(row)
            values = log_softmax(ranked)
            if state.changes_logits:
                ranked = values = edited(values, state)
            top_ids[index] = best = likeliest(ranked, top)
            top_logprobs[index] = np.maximum(values[best], LOGPROB_FLOOR)


def likeliest(values: FloatArray, top: int) -> IntArray:
    """The places of the `top` largest values, descending, equal ones by place."""
    return np.lexsort((np.arange(len(values)), -values))[:top]


def clean(logits: FloatArray) -> FloatArray:
    """NaN -> -inf, +inf -> the largest float32."""
    return np.where(np.isnan(logits), _f32(-np.inf), np.minimum(logits, np.finfo(_f32).max)).astype(_f32)


def edited(row: FloatArray, state: SamplingState) -> FloatArray:
    """Steps 1 to 5: a copy of the row with everything applied that changes single logits."""
    logits = clean(row)
    size = len(logits)
    params = state.params
    if state.allowed_mask is not None:
        if len(state.allowed_mask) != (size + 31) // 32:
            raise ValueError(f"allowed_mask has length {len(state.allowed_mask)}, must be {(size + 31) // 32}")
        bits = np.unpackbits(state.allowed_mask.astype("<u4").view(np.uint8), bitorder="little", count=size)
        logits[bits == 0] = -np.inf
    if state.output_len < params.min_tokens:
        logits[[token_id for token_id in state.end_ids if token_id < size]] = -np.inf
    for token_id, bias in (params.logit_bias or {}).items():
        if token_id < size:
            logits[token_id] += _f32(bias)
    ids, counts = state.count_arrays()
    ids, counts = ids[(ids >= 0) & (ids < size)], counts[(ids >= 0) & (ids < size)]
    with np.errstate(over="ignore"):
        logits[ids] = _penalised(clean(logits[ids]), counts, state)
    return clean(logits)


def _penalised(logits: FloatArray, counts: npt.NDArray[np.int32], state: SamplingState) -> FloatArray:
    params = state.params
    if params.repetition_penalty != 1.0:
        penalty = _f32(params.repetition_penalty)
        logits = np.where(logits > 0, logits / penalty, logits * penalty)
    in_output = logits - _f32(params.frequency_penalty) * counts.astype(_f32)
    in_output = in_output - _f32(params.presence_penalty)
    return np.where(counts > 0, in_output, logits)


def exp_nonpositive(x: FloatArray) -> FloatArray:
    """exp for x in [-30, 0] within 1e-7 (relative); 1 for 0. Elementwise float32 operations in a fixed
    order."""
    n = np.rint(x * _f32(1.44269504))
    r = x - n * _f32(0.693359375)
    r = r - n * _f32(-2.12194440e-4)
    p = _f32(0.0013814593) * r + _f32(0.0083687175)
    p = p * r + _f32(0.04166839)
    p = p * r + _f32(0.16666521)
    p = p * r + _f32(0.49999994)
    e = (p * (r * r) + r) + _f32(1.0)
    power: FloatArray = (e.view(np.int32) + (n.astype(np.int32) << 23)).view(_f32)
    return power


def weigh(logits: FloatArray, peak: np.float32, scale: np.float32, floor: np.float32) -> FloatArray:
    """Step 7: weights in [0, 1] of clean logits; zero below floor."""
    with np.errstate(over="ignore"):
        x = (logits - peak) * scale
    weights = exp_nonpositive(np.maximum(x, _f32(-30.0)))
    return np.where(weights >= floor, weights, _f32(0.0))


def masses(weights: FloatArray) -> IntArray:
    """round(w * 2^40)"""
    return np.rint(weights.astype(np.float64) * _MASS_SCALE).astype(np.int64)


def choose(logits: FloatArray, state: SamplingState) -> int:
    """Steps 6 to 10: a token id of edited logits."""
    params = state.params
    peak = logits.max()
    if peak == -np.inf:
        return NO_TOKEN
    if params.is_greedy:
        return int(logits.argmax())
    floor = max(_f32(params.min_p), _SMALLEST_WEIGHT)
    weights = weigh(logits, peak, _f32(inverse_temperature(params)), floor)
    mass = masses(weights)
    order = np.lexsort((np.arange(len(weights)), -weights))
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1.0:
        running = np.cumsum(mass[order])
        needed = math.ceil(params.top_p * float(running[-1]))
        if needed < running[-1]:
            order = order[: int(np.searchsorted(running, max(needed, 1))) + 1]
    kept = np.sort(order)
    running = np.cumsum(mass[kept])
    target = random_bits(state.seed, state.sequence_index, state.output_len) * int(running[-1]) >> 64
    return int(kept[np.searchsorted(running, target, side="right")])


def report(row: FloatArray, token_id: int, top: int, index: int, arrays: LogprobArrays) -> None:
    """Step 1's logprobs: of the token and of the `top` most likely ones, into row `index` of the arrays."""
    logits = clean(row)
    logprobs = log_softmax(logits)
    arrays.logprobs[index] = LOGPROB_FLOOR if token_id == NO_TOKEN else logprobs[token_id]
    arrays.ranks[index] = 0 if token_id == NO_TOKEN else 1 + np.count_nonzero(logits > logits[token_id])
    best = likeliest(logits, top)
    arrays.top_ids[index, : len(best)] = best
    arrays.top_logprobs[index, : len(best)] = logprobs[best]


def log_softmax(logits: FloatArray) -> FloatArray:
    """Of clean logits, at least LOGPROB_FLOOR. The sum is exact in units of 2^-40 of the largest term."""
    peak = logits.max()
    if peak == -np.inf:
        return np.full_like(logits, LOGPROB_FLOOR)
    total = int(masses(weigh(logits, peak, _f32(1.0), _SMALLEST_WEIGHT)).sum())
    values = (logits.astype(np.float64) - float(peak)) - math.log(total / _MASS_SCALE)
    return np.maximum(values, LOGPROB_FLOOR).astype(_f32)
