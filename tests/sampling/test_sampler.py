"""What each step does, on logits small enough to reason about; for both samplers alike."""

import json
import math

import numpy as np
import pytest

from octavo.sampling import LOGPROB_FLOOR, NO_TOKEN, SamplingState
from octavo.sampling_params import SamplingParams

INF = np.inf


def state(prompt=(), output=(), eos=(), seed=0, index=0, **params):
    made = SamplingState(SamplingParams(**params), prompt, seed, index, eos)
    for token_id in output:
        made.append(token_id)
    return made


def one(sampler, logits, made):
    return int(sampler.sample(np.array([logits], np.float32), [made]).token_ids[0])


def reachable(sampler, logits, draws=120, **params):
    """Every token that any of many seeds chooses."""
    rows = np.tile(np.array(logits, np.float32), (draws, 1))
    return set(sampler.sample(rows, [state(seed=s, **params) for s in range(draws)]).token_ids.tolist())


def test_greedy_takes_the_largest_and_of_equal_ones_the_lowest_id(make_sampler):
    sampler = make_sampler(5)
    assert one(sampler, [0, 3, 1, 3, 2], state(temperature=0)) == 1
    assert one(sampler, [-1, -1, -1, -1, -1], state(temperature=0)) == 0
    assert one(sampler, [-0.0, 0.0, -1, -1, -1], state(temperature=1e-6)) == 0


def test_nan_and_minus_infinity_are_never_chosen(make_sampler):
    sampler = make_sampler(4)
    assert one(sampler, [np.nan, -INF, -5, np.nan], state(temperature=0)) == 2
    assert reachable(sampler, [np.nan, -INF, 1, 1]) == {2, 3}


def test_plus_infinity_counts_as_the_largest_number(make_sampler):
    sampler = make_sampler(4)
    assert one(sampler, [1, INF, 3, INF], state(temperature=0)) == 1
    assert reachable(sampler, [1, INF, 3, INF]) == {1, 3}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_without_any_possible_token_does_not_disturb_the_others(make_sampler, temperature):
    logits = np.array([[0, 9, 0], [-INF, np.nan, -INF], [0, 0, 99]], np.float32)
    sampled = make_sampler(3).sample(logits, [state(temperature=temperature, logprobs=2) for _ in range(3)])
    assert sampled.token_ids.tolist()[1:] == [NO_TOKEN, 2]
    assert sampled.logprobs[1] == LOGPROB_FLOOR
    assert sampled.tops[1].rank == 0
    assert sampled.tops[1].logprobs.tolist() == [LOGPROB_FLOOR] * 2


def test_top_k_keeps_exactly_k_and_of_equal_ones_the_lowest_ids(make_sampler):
    sampler = make_sampler(6)
    assert reachable(sampler, [1, 5, 4, 4, 4, 1], top_k=1) == {1}
    assert reachable(sampler, [1, 3, 4, 3, 3, 1], top_k=3) == {1, 2, 3}
    assert reachable(sampler, [0] * 6, top_k=4) == {0, 1, 2, 3}
    assert reachable(sampler, [0] * 6, top_k=-1) == set(range(6))
    assert reachable(sampler, [0] * 6, top_k=100) == set(range(6))


def test_top_p_keeps_the_shortest_sufficient_prefix(make_sampler):
    sampler = make_sampler(4)
    logits = np.log([0.1, 0.4, 0.3, 0.2])
    assert reachable(sampler, logits, top_p=0.39) == {1}
    assert reachable(sampler, logits, top_p=0.41) == {1, 2}
    assert reachable(sampler, logits, top_p=0.69) == {1, 2}
    assert reachable(sampler, logits, top_p=0.71) == {1, 2, 3}
    assert reachable(sampler, logits, top_p=1e-9) == {1}
    assert reachable(sampler, [0, 0, 0, 0], top_p=0.5) == {0, 1}


def test_top_p_counts_the_mass_that_top_k_left(make_sampler):
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    # Of the two that top_k keeps, the first has 0.4 / 0.7 = 0.57.
    assert reachable(make_sampler(4), logits, top_k=2, top_p=0.5) == {0}
    assert reachable(make_sampler(4), logits, top_k=2, top_p=0.6) == {0, 1}


def test_min_p_is_relative_to_the_most_likely_token(make_sampler):
    logits = np.log([0.5, 0.26, 0.2, 0.04])
    assert reachable(make_sampler(4), logits, min_p=0.5) == {0, 1}
    assert reachable(make_sampler(4), logits, min_p=0.3) == {0, 1, 2}
    assert reachable(make_sampler(4), logits, min_p=0.999) == {0}


def test_temperature_comes_before_the_filters(make_sampler):
    logits = np.log([0.5, 0.26, 0.2, 0.04])
    assert reachable(make_sampler(4), logits, min_p=0.5, temperature=0.5) == {0}
    assert reachable(make_sampler(4), logits, min_p=0.5, temperature=2.0) == {0, 1, 2}


def test_extreme_temperatures_are_sound(make_sampler):
    sampler = make_sampler(3)
    assert reachable(sampler, [1e30, -1e30, 0], temperature=1e-5) == {0}
    assert reachable(sampler, [1, 2, 3], temperature=100.0) == {0, 1, 2}
    assert reachable(sampler, [3e38, -3e38, -3e38], temperature=100.0) == {0}


def test_logit_bias_forces_and_forbids(make_sampler):
    sampler = make_sampler(4)
    assert one(sampler, [5, 1, 0, 0], state(temperature=0, logit_bias={2: 100})) == 2
    assert one(sampler, [5, 1, 0, 0], state(temperature=0, logit_bias={0: -100})) == 1
    assert one(sampler, [5, -INF, 0, 0], state(temperature=0, logit_bias={1: 100})) == 0


def test_ids_outside_the_vocabulary_have_no_effect(make_sampler):
    made = state(prompt=[99, 1], eos=[77], temperature=0, repetition_penalty=2.0, min_tokens=1, logit_bias={55: 9})
    assert one(make_sampler(3), [0, 1, 0.9], made) == 2


def test_min_tokens_holds_back_end_ids_until_then(make_sampler):
    sampler = make_sampler(4)
    logits = [9, 8, 7, 6]
    made = state(eos=[0], stop_token_ids=[1], temperature=0, min_tokens=2)
    seen = []
    for _ in range(4):
        seen.append(one(sampler, logits, made))
        made.append(seen[-1])
    assert seen == [2, 2, 0, 0]


def test_ignore_eos_leaves_the_end_of_sequence_choosable(make_sampler):
    made = state(eos=[0], stop_token_ids=[1], temperature=0, min_tokens=2, ignore_eos=True)
    assert one(make_sampler(3), [9, 8, 7], made) == 0


def test_repetition_penalty_counts_prompt_and_output(make_sampler):
    sampler = make_sampler(4)
    assert one(sampler, [3, 2, 1, 0], state(prompt=[0, 0, 0], temperature=0, repetition_penalty=2.0)) == 1
    assert one(sampler, [3, 2, 1, 0], state(prompt=[0], output=[1], temperature=0, repetition_penalty=4.0)) == 2
    # Negative logits are multiplied, so that a penalised token never gains.
    assert one(sampler, [-1, -1.5, -9, -9], state(prompt=[0], temperature=0, repetition_penalty=2.0)) == 1


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_presence_and_frequency_do_not_count_the_prompt(make_sampler, name):
    sampler = make_sampler(3)
    assert one(sampler, [1, 0, 0], state(prompt=[0] * 50, temperature=0, **{name: 2.0})) == 0
    assert one(sampler, [1, 0, 0], state(prompt=[0], output=[0], temperature=0, **{name: 2.0})) == 1
    with_repetition = state(prompt=[0] * 50, temperature=0, repetition_penalty=1.5, **{name: 2.0})
    assert one(sampler, [1, 0.5, 0], with_repetition) == 0


def test_frequency_counts_occurrences_and_presence_does_not(make_sampler):
    sampler = make_sampler(2)
    assert one(sampler, [3, 0], state(output=[0, 0, 0], temperature=0, presence_penalty=2.0)) == 0
    assert one(sampler, [3, 0], state(output=[0], temperature=0, frequency_penalty=2.0)) == 0
    assert one(sampler, [3, 0], state(output=[0, 0], temperature=0, frequency_penalty=2.0)) == 1


def test_penalties_follow_tokens_appended_between_two_samples(make_sampler):
    sampler = make_sampler(3)
    made = state(temperature=0, frequency_penalty=1.0)
    seen = []
    for _ in range(5):
        seen.append(one(sampler, [2.5, 2, 0], made))
        made.append(seen[-1])
    assert seen == [0, 1, 0, 1, 0]


def test_allowed_mask_forbids_what_it_lacks_until_it_is_taken_away(make_sampler):
    sampler = make_sampler(70)
    logits = np.linspace(0, 1, 70)
    made = state(temperature=0)
    mask = np.zeros(3, np.uint32)
    mask[1], mask[0] = 1 << 3, 1 << 31
    made.allowed_mask = mask
    assert one(sampler, logits, made) == 35
    made.allowed_mask = None
    assert one(sampler, logits, made) == 69
    made.allowed_mask = np.zeros(3, np.uint32)
    assert one(sampler, logits, made) == NO_TOKEN


def test_logprobs_are_of_the_raw_distribution(make_sampler):
    logits = np.log([0.1, 0.2, 0.3, 0.4])
    made = state(prompt=[3], temperature=5.0, top_k=1, repetition_penalty=3.0, logit_bias={0: 50}, logprobs=3)
    made.allowed_mask = np.array([0b0011], np.uint32)
    sampled = make_sampler(4).sample(np.array([logits], np.float32), [made])
    top = sampled.tops[0]
    assert sampled.token_ids.tolist() == [0]
    assert math.isclose(sampled.logprobs[0], math.log(0.1), abs_tol=1e-6)
    assert top.ids.tolist() == [3, 2, 1]
    np.testing.assert_allclose(top.logprobs, np.log([0.4, 0.3, 0.2]), atol=1e-6)
    assert top.rank == 4


def test_logprobs_are_finite_for_json(make_sampler):
    logits = np.array([[0, -INF, np.nan, -1e9]], np.float32)
    sampled = make_sampler(4).sample(logits, [state(top_k=1, logprobs=4)])
    shown = json.dumps([*sampled.logprobs.tolist(), *sampled.tops[0].logprobs.tolist()], allow_nan=False)
    assert json.loads(shown) == [0.0, 0.0, LOGPROB_FLOOR, LOGPROB_FLOOR, LOGPROB_FLOOR]
    assert sampled.tops[0].ids.tolist() == [0, 3, 1, 2]


def test_only_rows_that_ask_get_logprobs(make_sampler):
    logits = np.zeros((3, 4), np.float32)
    sampled = make_sampler(4).sample(logits, [state(), state(logprobs=0), state(logprobs=2)])
    assert sampled.logprobs[0] == 0.0
    assert sampled.tops[0] is None
    assert len(sampled.tops[1].ids) == 0
    assert sampled.tops[1].rank == 1
    assert sampled.tops[2].ids.tolist() == [0, 1]
    np.testing.assert_allclose(sampled.logprobs[1:], np.log(0.25), atol=1e-6)


def test_more_logprobs_than_the_vocabulary_has_are_cut(make_sampler):
    top = make_sampler(3).sample(np.zeros((1, 3), np.float32), [state(logprobs=10)]).tops[0]
    assert top.ids.tolist() == [0, 1, 2]
    assert len(top.logprobs) == 3


def test_logits_are_the_same_afterwards(make_sampler):
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((2, 100)).astype(np.float32)
    before = logits.copy()
    made = state(prompt=[1, 2], output=[2], repetition_penalty=2.0, presence_penalty=1.0, logit_bias={2: 3, 5: 1})
    make_sampler(100).sample(logits, [made, state(eos=[3], min_tokens=4)])
    assert logits.tobytes() == before.tobytes()


def test_score_reports_given_tokens(make_sampler):
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((3, 1000)) * 4).astype(np.float32)
    ids = np.array([5, 999, int(logits[2].argmax())], np.int32)
    scored = make_sampler(1000).score(logits, ids, top=2)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact).sum(1, keepdims=True))
    np.testing.assert_allclose(scored.logprobs, exact[np.arange(3), ids], atol=2e-6)
    assert [top.rank for top in scored.tops] == [1 + int((exact[i] > exact[i, ids[i]]).sum()) for i in range(3)]
    assert scored.tops[2].ids[0] == ids[2]
    assert [len(top.ids) for top in scored.tops] == [2, 2, 2]


def test_score_of_a_row_does_not_depend_on_the_batch(make_sampler):
    rng = np.random.default_rng(2)
    logits = (rng.standard_normal((8, 777)) * 4).astype(np.float32)
    ids = rng.integers(0, 777, 8).astype(np.int32)
    sampler = make_sampler(777)
    together = sampler.score(logits, ids).logprobs
    apart = [sampler.score(logits[i : i + 1], ids[i : i + 1]).logprobs[0] for i in range(8)]
    assert together.tobytes() == np.array(apart, np.float32).tobytes()


@pytest.mark.parametrize("token_id", [-1, 10])
def test_score_refuses_ids_outside_the_vocabulary(make_sampler, token_id):
    with pytest.raises(ValueError, match=r"token_ids are from .* must be from 0 to 9"):
        make_sampler(10).score(np.zeros((1, 10), np.float32), np.array([token_id], np.int32))


def test_misshaped_logits_are_refused(make_sampler):
    sampler = make_sampler(10)
    for logits in (np.zeros((1, 9), np.float32), np.zeros((2, 10), np.float32), np.zeros((1, 10))):
        with pytest.raises(ValueError, match=r"logits are .*, must be float32"):
            sampler.sample(logits, [state()])


def test_an_empty_batch_is_no_error(make_sampler):
    sampled = make_sampler(10).sample(np.zeros((0, 10), np.float32), [])
    assert len(sampled.token_ids) == 0


def test_read_only_and_strided_logits_are_accepted(make_sampler):
    logits = np.zeros((2, 20), np.float32)
    logits[:, 6] = 9
    logits.flags.writeable = False
    sampled = make_sampler(10).sample(logits[:, ::2], [state(temperature=0)] * 2)
    assert sampled.token_ids.tolist() == [3, 3]


def test_an_allowed_mask_of_the_wrong_length_is_refused_by_both(make_sampler):
    made = state(temperature=0)
    made.allowed_mask = np.zeros(2, np.uint32)
    with pytest.raises(ValueError, match="allowed_mask"):
        one(make_sampler(70), [0.0] * 70, made)


def test_states_may_change_in_a_list_and_stay_in_a_tuple(make_sampler):
    sampler = make_sampler(3)
    logits = np.array([[0, 9, 0]], np.float32)
    states = [state(temperature=0)]
    assert sampler.sample(logits.copy(), states).tops == [None]
    states[0] = state(temperature=0, logprobs=1, logit_bias={2: 50.0})
    changed = sampler.sample(logits.copy(), states)
    assert changed.token_ids.tolist() == [2] and changed.tops[0].ids.tolist() == [1]
    kept = (state(seed=5),)
    drawn = []
    for _ in range(20):
        drawn.append(int(sampler.sample(np.zeros((1, 3), np.float32), kept).token_ids[0]))
        kept[0].append(drawn[-1])
    fresh = [one(sampler, [0, 0, 0], state(output=drawn[:i], seed=5)) for i in range(20)]
    assert drawn == fresh and len(set(drawn)) == 3
