import numpy as np
import pytest

from octavo.sampling import Sampler, SamplingState
from octavo.sampling_params import SamplingParams


def test_position_is_the_number_of_appended_tokens():
    state = SamplingState(SamplingParams(), [1, 2, 3], 0)
    assert state.output_len == 0
    state.append(5)
    state.append(5)
    assert state.output_len == 2


def test_tokens_are_counted_only_where_a_penalty_needs_them():
    assert SamplingState(SamplingParams(), [1], 0).counts is None
    output_only = SamplingState(SamplingParams(presence_penalty=1), [1], 0)
    output_only.append(4)
    assert output_only.counts == {4: 1}
    both = SamplingState(SamplingParams(repetition_penalty=1.5), [1, 2, 1], 0)
    both.append(2)
    both.append(2)
    assert both.counts == {1: 0, 2: 2}


def test_end_ids_are_those_of_the_model_and_of_the_request():
    params = SamplingParams(min_tokens=3, stop_token_ids=[9, 2])
    assert SamplingState(params, [], 0, 0, [2, 3]).end_ids == (2, 3, 9)
    ignoring = SamplingParams(min_tokens=3, stop_token_ids=[9], ignore_eos=True)
    assert SamplingState(ignoring, [], 0, 0, [2, 3]).end_ids == (9,)


def test_64_bits_of_the_seed_count():
    assert SamplingState(SamplingParams(), [], -1).seed == 2**64 - 1
    assert SamplingState(SamplingParams(), [], 2**64 + 5).seed == 5


def test_a_state_may_move_from_one_sampler_to_another():
    logits = np.array([[3.0, 2.0, 1.0]], np.float32)
    first, second = Sampler(3), Sampler(3)
    state = SamplingState(SamplingParams(temperature=0, frequency_penalty=1.5), [], 0)
    tokens = []
    for sampler in (first, second, first):
        tokens.append(int(sampler.sample(logits, [state]).token_ids[0]))
        state.append(tokens[-1])
    assert tokens == [0, 1, 0]


@pytest.mark.parametrize("mask", [np.zeros(4, np.int64), np.zeros((2, 2), np.uint32), [1, 2]])
def test_an_allowed_mask_of_another_kind_is_refused(mask):
    state = SamplingState(SamplingParams(), [], 0)
    with pytest.raises(ValueError, match=r"allowed_mask is .*, must be a contiguous 1-d uint32 array"):
        state.allowed_mask = mask
