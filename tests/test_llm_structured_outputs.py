"""Structured outputs through LLM and AsyncLLM over the real engine, with a very small model of single letters."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from small_model import SPECIAL, make_small_model

from octavo import LLM, AsyncLLM, BeamSearchParams, RequestOutput, SamplingParams, StructuredOutputsParams
from octavo.llm import MATCHERS_PER_SEAT

OPTIONS: dict[str, Any] = {"block_size": 8, "kv_cache_memory": "1MiB", "threads": 1}
ALL: dict[str, Any] = {"max_tokens": 24, "logprobs": 1}
EOS = SPECIAL.index("</s>")
OBJECT = {
    "type": "object",
    "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 999}, "on": {"type": "boolean"}},
    "required": ["id", "on"],
    "additionalProperties": False,
}
FORMS = {
    "object": StructuredOutputsParams(json=OBJECT),
    "regex": StructuredOutputsParams(regex="[a-f]{4}-([0-9]{2}){1,3}x"),
    "choice": StructuredOutputsParams(choice=["yes", "yes please", "no"]),
    "grammar": StructuredOutputsParams(grammar='start: item ("," item)*\nitem: "a" | "(" start ")"'),
    "any object": StructuredOutputsParams(json_object=True),
}


def is_good(name: str, text: str) -> bool:
    if name == "object":
        value = json.loads(text)
        return list(value) == ["id", "on"] and 0 <= value["id"] <= 999 and isinstance(value["on"], bool)
    if name == "any object":
        return isinstance(json.loads(text), dict)
    if name == "grammar":
        while "(a)" in text or "a,a" in text:
            text = text.replace("(a)", "a").replace("a,a", "a")
        return text == "a"
    pattern = "[a-f]{4}-([0-9]{2}){1,3}x" if name == "regex" else "yes|yes please|no"
    return re.fullmatch(pattern, text) is not None


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_small_model(tmp_path_factory.mktemp("model"), has_bytes=True))


@pytest.fixture(scope="module")
def llm(model: str) -> Iterator[LLM]:
    with LLM(model, **OPTIONS) as llm:
        yield llm


def requests() -> list[tuple[str, str, SamplingParams]]:
    """(name of the form, prompt, parameters); greedy and seeded, with penalties, bias, several answers."""
    varied: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"seed": 3, "n": 3},
        {"seed": 4, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5, "min_p": 0.02},
        {"seed": 5, "top_k": 3, "top_p": 0.8, "n": 2, "best_of": 4},
        {"seed": 6, "logit_bias": {EOS: -100.0, 20: 100.0}, "min_tokens": 4},
    ]
    return [
        (name, f"prompt {number} of some length", SamplingParams(**ALL, **more, structured_outputs=form))
        for number, (name, form) in enumerate(FORMS.items())
        for more in varied
    ]


def facts(output: RequestOutput) -> Any:
    assert output.error is None
    return [(each.text, each.token_ids, each.finish_reason, each.logprobs) for each in output.outputs]


@pytest.fixture(scope="module")
def expected(model: str) -> list[Any]:
    """Each alone, cold."""
    answers = []
    with LLM(model, enable_prefix_caching=False, **OPTIONS) as llm:
        for _, prompt, params in requests():
            answers.append(facts(llm.generate(prompt, params)[0]))
    return answers


def test_outputs_that_stop_have_the_form(expected: list[Any]) -> None:
    stopped = 0
    for (name, _, _), answers in zip(requests(), expected, strict=True):
        for text, token_ids, reason, _ in answers:
            assert reason in ("stop", "length")
            if reason == "stop":
                stopped += 1
                assert is_good(name, text) and token_ids[-1] == EOS and EOS not in token_ids[:-1]
            else:
                assert EOS not in token_ids
    assert stopped >= 20


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("preempt", [True, False])
def test_the_same_bytes_among_others_preempted_at_every_step_and_cached(
    model: str, expected: list[Any], caching: bool, preempt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [prompt for _, prompt, _ in requests()]
    params = [params for _, _, params in requests()]
    with LLM(model, enable_prefix_caching=caching, max_num_batched_tokens=48, max_num_seqs=16, **OPTIONS) as llm:
        step = llm.loaded.engine.step

        def step_and_preempt() -> Any:
            updates = step()
            if preempt:
                llm.loaded.engine.scheduler.preempt_all()
            return updates

        monkeypatch.setattr(llm.loaded.engine, "step", step_and_preempt)
        for _ in range(2):
            plain = llm.generate(["others"] * len(prompts), SamplingParams(max_tokens=4, seed=1))
            assert [facts(output) for output in llm.generate(prompts, params)] == expected
            assert facts(plain[0]) == facts(plain[-1])
        assert llm.stats().referenced_blocks == 0


def test_several_answers_differ_and_repeat_by_seed(llm: LLM) -> None:
    params = SamplingParams(n=6, seed=1, max_tokens=24, structured_outputs=FORMS["regex"])
    (first,), (second,) = llm.generate("x", params), llm.generate("x", params)
    assert facts(first) == facts(second) and len({each.text for each in first.outputs}) > 2


@pytest.mark.parametrize("name", FORMS)
def test_beams_follow_the_form_each_on_its_own(llm: LLM, name: str) -> None:
    params = [
        BeamSearchParams(width, 24, structured_outputs=FORMS[name], logprobs=0, repetition_penalty=penalty)
        for width, penalty in ((1, 1.0), (4, 1.0), (4, 1.2), (8, 1.0))
    ]
    together = llm.beam_search(["a prompt"] * 4, params)
    for one, output in zip(params, together, strict=True):
        assert facts(llm.beam_search("a prompt", one)[0]) == facts(output)
        assert len({tuple(each.token_ids) for each in output.outputs if each.token_ids}) >= min(one.beam_width, 3)
        for each in output.outputs:
            assert each.finish_reason == "length" or not each.token_ids or is_good(name, each.text)


def test_beams_of_few_possible_outputs_are_these(llm: LLM) -> None:
    (output,) = llm.beam_search("x", BeamSearchParams(8, 24, structured_outputs=FORMS["choice"]))
    assert sorted(each.text for each in output.outputs) == ["", "", "", "", "", "no", "yes", "yes please"]


def test_a_complete_value_ends_whatever_min_tokens_and_ignore_eos_say(llm: LLM) -> None:
    form = StructuredOutputsParams(regex="ab{0,3}")
    held = SamplingParams(min_tokens=20, max_tokens=24, structured_outputs=form)
    unending = SamplingParams(ignore_eos=True, max_tokens=24, structured_outputs=form)
    for params in (
        held,
        unending,
        SamplingParams(min_tokens=20, ignore_eos=True, max_tokens=24, structured_outputs=form),
    ):
        (each,) = llm.generate("x", params)[0].outputs
        assert (each.text, each.finish_reason, each.stop_reason) == ("abbb", "stop", None)
    endless = StructuredOutputsParams(regex="a+")
    (each,) = llm.generate("x", SamplingParams(ignore_eos=True, max_tokens=9, structured_outputs=endless))[0].outputs
    assert (each.text, each.finish_reason) == ("a" * 9, "length")
    (each,) = llm.beam_search("x", BeamSearchParams(2, 24, n=1, min_tokens=20, structured_outputs=form))[0].outputs
    assert (each.text, each.finish_reason) == ("abbb", "stop")


def test_stop_strings_stop_tokens_and_limits_cut_short(llm: LLM) -> None:
    form = StructuredOutputsParams(regex="abcd")
    letter = len(SPECIAL) + ord("c") - ord(" ")
    for more, text, reason, why in (
        ({"stop": "bc"}, "a", "stop", "bc"),
        ({"stop": "bc", "include_stop_str_in_output": True}, "abc", "stop", "bc"),
        ({"stop_token_ids": [letter]}, "ab", "stop", letter),
        ({"max_tokens": 3}, "abc", "length", None),
        ({"max_tokens": 4}, "abcd", "length", None),
        ({"max_tokens": 5}, "abcd", "stop", None),
    ):
        (each,) = llm.generate("x", SamplingParams(**{"max_tokens": 24, **more}, structured_outputs=form))[0].outputs
        assert (each.text, each.finish_reason, each.stop_reason) == (text, reason, why)


def test_a_bad_form_is_refused_before_anything_runs(llm: LLM) -> None:
    steps = llm.stats().steps
    bad = SamplingParams(structured_outputs=StructuredOutputsParams(regex="(a"))
    with pytest.raises(ValueError, match="unclosed group"):
        llm.generate(["x", "y"], [SamplingParams(), bad])
    with pytest.raises(ValueError, match="unclosed group"):
        next(llm.stream("x", bad))
    with pytest.raises(ValueError, match="unclosed group"):
        llm.beam_search("x", BeamSearchParams(structured_outputs=bad.structured_outputs))
    assert llm.stats().steps == steps


def test_a_form_that_no_token_of_the_model_can_begin_is_refused(llm: LLM) -> None:
    with pytest.raises(ValueError, match="no token of the model can go on from here"):
        llm.generate("x", SamplingParams(structured_outputs=StructuredOutputsParams(choice=["ä"])))


def test_one_that_comes_to_a_dead_end_ends_alone(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=9, structured_outputs=StructuredOutputsParams(choice=[text]))
              for text in ("abc", "abä", "abd")]  # fmt: skip
    outputs = llm.generate(["x", "x", "x"], params)
    assert [output.outputs[0].finish_reason for output in outputs] == ["stop", "error", "stop"]
    assert outputs[1].error is not None and "no token of the model can go on" in outputs[1].error
    assert [output.outputs[0].text for output in outputs] == ["abc", "a", "abd"]


def test_few_matchers_are_made_ahead_of_the_seats(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM(model, max_num_seqs=2, **OPTIONS) as llm:
        most = 0
        step = llm.loaded.engine.step

        def counting() -> Any:
            nonlocal most
            stats = llm.stats()
            most = max(most, stats.running + stats.waiting)
            return step()

        monkeypatch.setattr(llm.loaded.engine, "step", counting)
        params = SamplingParams(max_tokens=12, structured_outputs=FORMS["choice"])
        outputs = llm.generate(["x"] * 30, params)
    assert all(is_good("choice", output.outputs[0].text) for output in outputs)
    assert most == 2 * MATCHERS_PER_SEAT


def test_readers_on_an_event_loop_get_them_too_and_are_told_what_is_wrong(model: str) -> None:
    async def ask(llm: AsyncLLM, form: StructuredOutputsParams) -> str:
        text = ""
        async for output in llm.generate("x", SamplingParams(max_tokens=24, seed=1, structured_outputs=form)):
            text += output.outputs[0].delta
        return text

    async def run() -> list[Any]:
        async with AsyncLLM(model, **OPTIONS) as llm:
            beams = await llm.beam_search("x", BeamSearchParams(2, 24, structured_outputs=FORMS["choice"]))
            forms = [FORMS["choice"], StructuredOutputsParams(regex="(a"), FORMS["regex"]] * 3
            return [
                beams.outputs[0].text,
                *await asyncio.gather(*(ask(llm, form) for form in forms), return_exceptions=True),
            ]

    beam, *answers = asyncio.run(run())
    assert is_good("choice", beam)
    for place, answer in enumerate(answers):
        if place % 3 == 1:
            assert isinstance(answer, ValueError) and "unclosed group" in str(answer)
        else:
            assert is_good("choice" if place % 3 == 0 else "regex", answer)


def test_logprobs_are_the_models_own_whatever_is_allowed(llm: LLM) -> None:
    form = StructuredOutputsParams(choice=["q"])
    params = SamplingParams(temperature=0, max_tokens=2, logprobs=3, structured_outputs=form)
    free = SamplingParams(temperature=0, max_tokens=1, logprobs=3)
    (bound,), (unbound,) = llm.generate("x", params)[0].outputs, llm.generate("x", free)[0].outputs
    assert bound.logprobs is not None and unbound.logprobs is not None and bound.text == "q" != unbound.text
    likeliest = {token: entry for token, entry in bound.logprobs[0].items() if entry.rank in (1, 2, 3)}
    assert likeliest == unbound.logprobs[0]
