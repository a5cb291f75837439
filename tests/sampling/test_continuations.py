"""The likeliest next tokens of beams: native and numpy give the same bytes, whatever changes their logprobs."""

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS

from octavo import _native
from octavo.beam_search_params import BeamSearchParams
from octavo.sampling import LOGPROB_FLOOR, Sampler, SamplingState
from octavo.sampling.reference_sampler import clean, edited, log_softmax


def random_state(rng, vocab_size):
    def maybe(value, otherwise):
        return value if rng.random() < 0.5 else otherwise

    params = BeamSearchParams(
        repetition_penalty=maybe(float(rng.choice([0.5, 1.1, 2.0])), 1.0),
        presence_penalty=maybe(float(rng.choice([-2.0, 0.3])), 0.0),
        frequency_penalty=maybe(float(rng.choice([-1.0, 0.7])), 0.0),
        logit_bias=maybe({int(i): float(rng.normal(0, 9)) for i in rng.integers(0, vocab_size, 9)}, None),
        min_tokens=int(rng.integers(0, 6)),
        stop_token_ids=[int(i) for i in rng.integers(0, vocab_size, 3)],
        logprobs=maybe(5, None),
    )
    state = SamplingState(params, rng.integers(0, vocab_size, 20).tolist(), 0, 0, [2, 7])
    for token in rng.integers(0, vocab_size, int(rng.integers(0, 12))).tolist():
        state.append(token)
    if rng.random() < 0.3:
        state.allowed_mask = rng.integers(0, 2**32, (vocab_size + 31) // 32, dtype=np.uint32)
    return state


def random_rows(rng, count, vocab_size):
    """Flat to steep, with ties, infinities and NaN; the last one allows nothing."""
    rows = (rng.standard_normal((count, vocab_size)) * rng.choice([0.0, 0.5, 3.0, 30.0], (count, 1))).astype(np.float32)
    tied = rng.random(count) < 0.3
    rows[tied] = np.round(rows[tied])
    rows[rng.random(rows.shape) < 0.01] = -np.inf
    rows[rng.random(rows.shape) < 0.001] = np.nan
    rows[-1] = -np.inf
    return rows


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize(("count", "vocab_size"), [(1, 7), (9, 300), (5, 60_000), (2, 140_000)])
def test_native_and_reference_give_the_same_bytes(instruction_set, count, vocab_size):
    rng = np.random.default_rng(count)
    rows = random_rows(rng, count, vocab_size)
    states = [random_state(rng, vocab_size) for _ in range(count)]
    before = rows.copy()
    wanted = Sampler(vocab_size, use_native=False).continuations(rows, states, 8)
    for threads in (1, 3):
        sampler = Sampler(vocab_size, _native.ThreadTeam(threads), instruction_set=instruction_set)
        for batch in (range(count), [0]):  # with neighbours and alone
            found = sampler.continuations(rows[batch], [states[row] for row in batch], 8)
            for name, one, other in zip(("ids", "logprobs"), wanted, found, strict=True):
                assert one[batch].tobytes() == other.tobytes(), name
    assert rows.tobytes() == before.tobytes()


def test_edits_act_on_logprobs_in_the_documented_order(make_sampler):
    rng = np.random.default_rng(1)
    vocab_size = 90
    for _ in range(20):
        rows = random_rows(rng, 2, vocab_size)
        state = random_state(rng, vocab_size)
        ids, logprobs = make_sampler(vocab_size).continuations(rows, [state, state], 5)
        values = log_softmax(clean(rows[0]))
        values = edited(values, state) if state.changes_logits else values
        assert logprobs[0].tolist() == np.maximum(np.sort(values)[::-1][:5], LOGPROB_FLOOR).tolist()
        assert np.maximum(values[ids[0]], LOGPROB_FLOOR).tolist() == logprobs[0].tolist()
        assert (logprobs[1] <= LOGPROB_FLOOR).all() or state.changes_logits, "nothing is possible"


def test_a_fork_goes_on_with_the_counts_of_its_parent(make_sampler):
    rng = np.random.default_rng(2)
    rows = random_rows(rng, 3, 50)[:1]
    params = BeamSearchParams(frequency_penalty=1.0, repetition_penalty=1.5)
    sampler = make_sampler(50)
    parent = SamplingState(params, [1, 2, 3], 0)
    for token in (4, 4, 5):
        parent.append(token)
        sampler.continuations(rows, [parent], 4)
    child = parent.fork()
    child.append(6)
    parent.append(7)
    for state, last in ((child, 6), (parent, 7)):
        fresh = SamplingState(params, [1, 2, 3], 0)
        for token in (4, 4, 5, last):
            fresh.append(token)
        for one, other in zip(
            sampler.continuations(rows, [state], 4), sampler.continuations(rows, [fresh], 4), strict=True
        ):
            assert one.tobytes() == other.tobytes()


def test_no_more_than_the_vocabulary(make_sampler):
    rows = np.arange(6, dtype=np.float32)[None]
    ids, logprobs = make_sampler(6).continuations(rows, [SamplingState(BeamSearchParams(), [0], 0)], 9)
    assert ids.tolist() == [[5, 4, 3, 2, 1, 0]] and logprobs.shape == (1, 6)


def test_a_row_that_is_sampled_cannot_be_left_out():
    sampler = _native.BatchSampler(6, _native.ThreadTeam(1))
    with pytest.raises((TypeError, RuntimeError)):
        sampler.sample(np.zeros((1, 6), np.float32), [None], None, np.zeros(1, np.int32))
