import dataclasses
import json
import pickle

import pytest

from octavo.sampling_params import SamplingParams

NAN, INF = float("nan"), float("inf")

REFUSED = [
    *[("temperature", v) for v in (999999, -0.1, 100.1, NAN, INF, -INF, "1", True, None, [1.0], 10**400)],
    *[("top_p", v) for v in (-1, 0, 0.0, 1.01, NAN, "0.9", False)],
    *[("top_k", v) for v in (0.01, 1.0, -2, 2**31, "5", True, NAN)],
    *[("min_p", v) for v in (1.0, -0.01, NAN, INF, "0")],
    *[("repetition_penalty", v) for v in (0, 0.0, -1, 100.5, NAN, INF, "1.1")],
    *[(name, v) for name in ("presence_penalty", "frequency_penalty") for v in (2.1, -2.1, NAN, INF, "0")],
    *[("n", v) for v in (0, -1, 10**9, 1.0, True, "2")],
    *[("seed", v) for v in (2**70, -(2**63) - 1, 2**64, 1.5, "7", True)],
    *[("stop", v) for v in ("", [""], ["a", ""], [1], 5, ["x"] * 17, "x" * 1025, {"a": 1}, b"a")],
    *[("stop_token_ids", v) for v in ([-1], [1.0], ["1"], [True], 5, [1] * 129, [2**31])],
    *[("min_tokens", v) for v in (-1, 1.0, "1", 17)],
    *[("max_tokens", v) for v in (0, -5, 2.0, "16", True, 2**31)],
    *[(name, v) for name in ("logprobs", "prompt_logprobs") for v in (-1, 65, 1.0, True, "5")],
    *[("logit_bias", v) for v in ({-1: 1.0}, {1: 101}, {1: -100.5}, {1: NAN}, {1: "3"}, {"1": 1.0}, [1], {True: 1})],
    *[("logit_bias", dict.fromkeys(range(4097), 0.5))],
    *[
        (name, v)
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens")
        for v in (1, 0, None, "true")
    ],
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda v: str(v)[:20])
def test_bad_value_is_refused_and_named(name, value):
    with pytest.raises(ValueError, match=rf"^{name}.* is .*, must be .+") as caught:
        SamplingParams(**{name: value})
    assert len(str(caught.value)) < 300


def test_an_error_shows_field_value_and_limit():
    with pytest.raises(ValueError, match=r"^temperature is 999999, must be a number from 0 to 100$"):
        SamplingParams(temperature=999999)
    with pytest.raises(ValueError, match=r"^top_k is 0\.01, must be an integer from -1 to 2147483647$"):
        SamplingParams(top_k=0.01)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^top_p is -1, must be a number above 0 to 1$"):
        SamplingParams(top_p=-1)


def test_an_integer_of_10000_digits_is_refused_in_a_short_message():
    with pytest.raises(ValueError, match="an integer of 33220 bits"):
        SamplingParams(seed=10**10000)


def test_defaults_are_those_of_vllm():
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.max_tokens) == (
        1,
        1.0,
        1.0,
        0,
        16,
    )
    assert (params.stop, params.stop_token_ids, params.logit_bias, params.seed) == ((), (), None, None)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0},
        {"temperature": 100},
        {"top_k": -1},
        {"top_p": 1e-9},
        {"min_p": 0.999},
        {"seed": -(2**63)},
        {"seed": 2**64 - 1},
        {"max_tokens": None, "min_tokens": 1000},
        {"logprobs": 0},
        {"logprobs": 64},
        {"stop": ["s"] * 16},
        {"logit_bias": {0: 100, 49151: -100}},
        {"n": 128},
    ],
    ids=str,
)
def test_values_at_the_limits_are_accepted(values):
    SamplingParams(**values)


def test_stop_is_normalised_to_a_tuple():
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(stop=[]).stop == ()
    assert SamplingParams(stop_token_ids=[3, 4]).stop_token_ids == (3, 4)


def test_whole_numbers_count_as_numbers():
    temperature = SamplingParams(temperature=1).temperature
    assert temperature == 1.0
    assert isinstance(temperature, float)


def test_it_cannot_be_changed_and_does_not_follow_its_arguments():
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 1000.0
    assert params.logit_bias == {1: 2.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.n = 2  # type: ignore[misc]


def test_replace_checks_again_and_keeps_the_rest():
    params = SamplingParams(stop="x", logit_bias={1: 2.0}, seed=7)
    assert dataclasses.replace(params, seed=8) == SamplingParams(stop="x", logit_bias={1: 2.0}, seed=8)
    with pytest.raises(ValueError, match=r"^n is 0"):
        dataclasses.replace(params, n=0)


def test_it_can_be_pickled_and_hashed():
    params = SamplingParams(stop=["x"], logit_bias={1: 2.0})
    copy = pickle.loads(pickle.dumps(params))
    assert copy == params
    assert hash(copy) == hash(params)


def test_from_dict_takes_json_with_string_keys_in_logit_bias():
    params = SamplingParams.from_dict(json.loads('{"top_k": 5, "logit_bias": {"17": -3}, "stop": ["a"], "seed": null}'))
    assert params == SamplingParams(top_k=5, logit_bias={17: -3.0}, stop="a")


def test_from_dict_refuses_unknown_keys_by_name():
    with pytest.raises(ValueError, match=r"^best_off, top_kk: unknown; must be of .*top_k"):
        SamplingParams.from_dict({"top_kk": 5, "best_off": 2})


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", '"0.5"', "true", "1e999"])
def test_from_dict_refuses_json_literals_that_are_no_finite_number(literal):
    with pytest.raises(ValueError, match=r"^temperature is"):
        SamplingParams.from_dict(json.loads(f'{{"temperature": {literal}}}'))


@pytest.mark.parametrize("key", ["-1", "1.5", "x", "", "1" * 11, "٣"])
def test_from_dict_refuses_logit_bias_keys_that_are_no_ids(key):
    with pytest.raises(ValueError, match=r"^logit_bias id is"):
        SamplingParams.from_dict({"logit_bias": {key: 1.0}})


def test_from_dict_refuses_what_is_no_object():
    with pytest.raises(ValueError, match="must be an object"):
        SamplingParams.from_dict([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [{"logit_bias": {100: 1.0}}, {"stop_token_ids": [5, 100]}], ids=str)
def test_ids_outside_the_vocabulary_are_found(values):
    params = SamplingParams(**values)
    params.check_vocab(101)
    with pytest.raises(ValueError, match="id is 100, must be below the vocabulary size 100"):
        params.check_vocab(100)
