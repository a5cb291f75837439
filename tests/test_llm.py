"""LLM: prompts of every form in, outputs in input order out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_model import EOS, make_fake_model

from octavo import LLM, SamplingParams
from octavo.engine.sequence_update import SequenceUpdate
from octavo.loading import LoadedModel
from octavo.prompts import TokenizedPrompt
from octavo.request_driver import EngineError, RequestDriver, RequestError

LONG = SamplingParams(max_tokens=100)


def llm_that_says(text: str, **engine: Any) -> LLM:
    return LLM.from_loaded(make_fake_model(lambda _: text, **engine))


def test_outputs_are_in_the_order_of_the_prompts(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    outputs = llm.generate(["a longer prompt", "b", "middling"], LONG)
    assert [output.outputs[0].text for output in outputs] == ["A LONGER PROMPT", "B", "MIDDLING"]
    assert [output.prompt for output in outputs] == ["a longer prompt", "b", "middling"]
    assert all(output.finished and output.outputs[0].finish_reason == "stop" for output in outputs)
    assert outputs[1].outputs[0].token_ids == [ord("B"), EOS]
    assert outputs[0].num_cached_tokens == 3
    assert outputs[0].metrics.time_to_first_token is not None


@pytest.mark.parametrize(
    ("prompts", "texts"),
    [
        ("ab", ["AB"]),
        ([97, 98], ["AB"]),
        ([[97], [98]], ["A", "B"]),
        ({"prompt_token_ids": [97]}, ["A"]),
        ([{"prompt": "a", "cache_salt": "s"}, "b", [99]], ["A", "B", "C"]),
    ],
)
def test_prompts_of_every_form(fake_model: LoadedModel, prompts: Any, texts: list[str]) -> None:
    outputs = LLM.from_loaded(fake_model).generate(prompts, LONG)
    assert [output.outputs[0].text for output in outputs] == texts


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "prompt: must not be empty"),
        ([], "must hold at least one prompt"),
        ([[]], "prompt: must not be empty"),
        ([""], "prompt: must not be empty"),
        ([["a"]], r"prompt_token_ids\[0\]='a': must be an integer"),
        ([[True]], r"prompt_token_ids\[0\]=True: must be an integer"),
        ([[1, 257]], r"prompt_token_ids\[1\]=257: must be from 0 to 256"),
        ([[-1]], r"prompt_token_ids\[0\]=-1: must be from 0 to 256"),
        ([[1] * 4096], r"prompt: has 4096 tokens; with max_model_len=4096 it may have at most 4095"),
        ("a" * 65_537, r"prompt: has 65537 characters; with max_model_len=4096 it may have at most 65536"),
        ({"text": "a"}, "unknown key 'text'"),
        ({"cache_salt": "a"}, "must have one of the keys"),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt=''"),
        ({"prompt": {}}, "must be text or token ids"),
        (7, "prompts: must be text"),
        (["a\ud800"], r"lone surrogate U\+D800"),
        ("x" * 4096, "has 4096 tokens; with max_model_len=4096 it may have at most 4095"),
    ],
)
def test_bad_prompts_are_refused_before_anything_runs(fake_model: LoadedModel, prompt: Any, message: str) -> None:
    llm = LLM.from_loaded(fake_model)
    with pytest.raises(ValueError, match=message):
        llm.generate(prompt, LONG)
    engine: Any = fake_model.engine
    assert engine.steps == 0
    assert not engine.running


def test_a_conversation_that_could_never_fit_is_refused_before_it_is_read(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    tokenizer: Any = fake_model.tokenizer
    tokenizer.encode = None
    call = {"function": {"name": "f", "arguments": {"x": ["y" * 65_536]}}}
    with pytest.raises(ValueError, match=r"messages: has \d+ characters; with max_model_len=4096"):
        llm.chat([{"role": "assistant", "content": None, "tool_calls": [call]}], LONG)


def test_one_bad_prompt_among_good_ones_runs_none(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    engine: Any = fake_model.engine
    engine.capacity = 3
    with pytest.raises(ValueError, match="needs 4 slots of 3"):
        llm.generate(["abc", "abcd", "ab"], LONG)
    assert engine.steps == 0
    assert not engine.running
    assert llm.generate("abc", LONG)[0].outputs[0].text == "ABC"


def test_params_one_for_all_or_one_each(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    each = [SamplingParams(max_tokens=1), SamplingParams(max_tokens=2)]
    outputs = llm.generate(["abc", "abc"], each)
    assert [output.outputs[0].text for output in outputs] == ["A", "AB"]
    assert [output.outputs[0].finish_reason for output in outputs] == ["length", "length"]
    with pytest.raises(ValueError, match="sampling_params: 2 for 1 prompts"):
        llm.generate("abc", each)


def test_chat_goes_through_the_template(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    question = [{"role": "user", "content": "hi"}]
    (output,) = llm.chat(question, LONG)
    assert output.prompt == "user: hi\nassistant: "
    assert output.outputs[0].text == "USER: HI\nASSISTANT: "
    assert len(llm.chat([question, question], LONG)) == 2
    for bad in ([], "hi", [[]], [{"content": "no role"}], [{"role": "user", "content": "\udc80"}]):
        with pytest.raises(ValueError, match="messages"):
            llm.chat(bad, LONG)


@pytest.mark.parametrize("include", [False, True])
def test_stop_string_ends_the_text_and_tells_the_engine(include: bool) -> None:
    llm = llm_that_says("one two three")
    params = SamplingParams(max_tokens=50, stop=[" tw"], include_stop_str_in_output=include)
    (output,) = llm.generate("p", params)
    completion = output.outputs[0]
    assert completion.text == ("one tw" if include else "one")
    assert (completion.finish_reason, completion.stop_reason) == ("stop", " tw")
    assert bytes(completion.token_ids) == b"one tw"
    engine: Any = llm.loaded.engine
    assert engine.finished == [(output.request_id, 0, "stop")]
    assert not engine.running


def test_stop_string_in_the_last_token_is_a_stop() -> None:
    llm = llm_that_says("abc")
    (output,) = llm.generate("p", SamplingParams(max_tokens=3, stop=["c"]))
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("ab", "stop")
    engine: Any = llm.loaded.engine
    assert engine.finished == []


def test_tokens_of_the_step_in_which_a_stop_string_ends_a_sequence_are_dropped() -> None:
    """Where a draft was right, a step has several tokens of one sequence."""
    loaded = llm_that_says("-").loaded
    driver = RequestDriver(loaded.engine, loaded.tokenizer, loaded.vocab_size, loaded.grammars)
    params = SamplingParams(max_tokens=50, stop=["c"], n=2)
    state = driver.new_state("r", TokenizedPrompt("p", [1]), params)
    driver.add(state)

    def updates(index: int, text: str, reason: str | None = None) -> list[SequenceUpdate]:
        tokens = [SequenceUpdate("r", index, token, None, None, None, 0) for token in text.encode()]
        tokens[-1].finish_reason = reason
        return tokens

    driver.deliver([*updates(0, "abcd"), *updates(1, "ef")])
    assert not state.finished
    driver.deliver(updates(1, "gcdh", "length"))
    assert state.finished
    assert [(answer.text, answer.stop_reason) for answer in state.output().outputs] == [("ab", "c"), ("efg", "c")]
    assert [bytes(answer.token_ids) for answer in state.output().outputs] == [b"abc", b"efgc"]


def test_half_a_stop_string_at_the_end_is_text() -> None:
    llm = llm_that_says("abc")
    (output,) = llm.generate("p", SamplingParams(max_tokens=50, stop=["cd"]))
    assert (output.outputs[0].text, output.outputs[0].stop_reason) == ("abc", None)


def test_stop_string_before_min_tokens_does_not_count() -> None:
    llm = llm_that_says("xaxbx")
    (output,) = llm.generate("p", SamplingParams(max_tokens=50, min_tokens=3, stop=["x"]))
    assert output.outputs[0].text == "xaxb"


def test_logprobs_are_by_token_id_with_the_chosen_one_first(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    (output,) = llm.generate("ab", SamplingParams(max_tokens=2, logprobs=2, prompt_logprobs=1))
    completion = output.outputs[0]
    assert completion.logprobs is not None
    assert [list(entry) for entry in completion.logprobs] == [[65, 0, 1], [66, 0, 1]]
    assert completion.logprobs[0][65].decoded_token == "A"
    assert completion.logprobs[0][1].rank == 2
    assert completion.cumulative_logprob == -1.0
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    assert list(output.prompt_logprobs[1] or {}) == [98, 0]


def test_no_logprobs_unless_asked_for(fake_model: LoadedModel) -> None:
    (output,) = LLM.from_loaded(fake_model).generate("ab", LONG)
    assert output.outputs[0].logprobs is None
    assert output.outputs[0].cumulative_logprob is None
    assert output.prompt_logprobs is None


def test_several_sequences_of_a_request(fake_model: LoadedModel) -> None:
    (output,) = LLM.from_loaded(fake_model).generate("ab", SamplingParams(n=3, max_tokens=9))
    assert [completion.index for completion in output.outputs] == [0, 1, 2]
    assert {completion.text for completion in output.outputs} == {"AB"}


def test_text_is_decoded_once_where_nobody_looks_on_the_way(fake_model: LoadedModel) -> None:
    LLM.from_loaded(fake_model).generate(["a long prompt indeed", "x"], LONG)
    tokenizer: Any = fake_model.tokenizer
    assert tokenizer.decoded == 2


def test_stream_joins_to_the_full_text_without_broken_characters() -> None:
    text = "नमस्ते 👩‍👩‍👧 日本"
    llm = llm_that_says(text)
    outputs = list(llm.stream("p", SamplingParams(max_tokens=200)))
    assert "".join(output.outputs[0].delta for output in outputs) == text == outputs[-1].outputs[0].text
    assert not any("\ufffd" in output.outputs[0].delta for output in outputs)
    assert [output.finished for output in outputs] == [False] * (len(outputs) - 1) + [True]


def test_stream_never_shows_a_stop_string() -> None:
    llm = llm_that_says("hello STOP more")
    deltas = [output.outputs[0].delta for output in llm.stream("p", SamplingParams(max_tokens=99, stop=["STOP"]))]
    assert "".join(deltas) == "hello "


def test_closed_stream_is_aborted() -> None:
    llm = llm_that_says("endless" * 10)
    stream = llm.stream("p", LONG)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    engine: Any = llm.loaded.engine
    assert len(engine.aborted) == 1
    assert not engine.running


def test_stream_goes_on_after_a_generate_in_between(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    stream = llm.stream("abcdef", LONG)
    first = next(stream).outputs[0].delta
    assert llm.generate("a much longer prompt", LONG)[0].outputs[0].text == "A MUCH LONGER PROMPT"
    assert first + "".join(output.outputs[0].delta for output in stream) == "ABCDEF"


def test_engine_failure_leaves_nothing_behind(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    engine: Any = fake_model.engine

    def fail() -> None:
        raise RuntimeError("broken step")

    engine.before_step = fail
    with pytest.raises(RuntimeError, match="broken step"):
        llm.generate(["a", "b"], LONG)
    assert not engine.running
    engine.before_step = lambda: None
    assert llm.generate("a", LONG)[0].outputs[0].text == "A"


def test_error_of_one_request_is_raised_and_the_engine_is_clean(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    engine: Any = fake_model.engine
    step = engine.step

    def failing_step() -> Any:
        return [replace(update, finish_reason="error", error="out of luck") for update in step()]

    engine.step = failing_step
    stream = llm.stream("abc", LONG)
    with pytest.raises(RequestError, match="out of luck"):
        next(stream)
    assert not engine.running


def test_error_of_one_request_leaves_the_others_their_answers(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    engine: Any = fake_model.engine
    step = engine.step
    engine.step = lambda: [
        replace(update, finish_reason="error", error="no token can be chosen") if update.request_id == "1" else update
        for update in step()
    ]
    good, bad, last = llm.generate(["abc", "def", "ghi"], LONG)
    assert [output.outputs[0].text for output in (good, last)] == ["ABC", "GHI"]
    assert good.error is last.error is None
    assert bad.outputs[0].finish_reason == "error" and bad.error == "no token can be chosen"
    assert not engine.running


def test_idle_memory_is_given_back_after_each_call(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    engine: Any = fake_model.engine
    stream = llm.stream("abcdef", LONG)
    next(stream)
    llm.generate("a", LONG)
    assert engine.released == 0, "the stream still runs"
    list(stream)
    assert engine.released == 1
    llm.generate("a", LONG)
    assert engine.released == 2
    assert engine.kept_blocks == 256 * 2**20 // fake_model.block_bytes
    llm.reset_prefix_cache()
    assert (engine.dropped, engine.released, engine.kept_blocks) == (1, 3, 0)


def test_close_frees_and_may_be_called_twice(fake_model: LoadedModel) -> None:
    executor: Any = fake_model.executor
    with LLM.from_loaded(fake_model) as llm:
        stream = llm.stream("abc", LONG)
        next(stream)
        assert llm.stats().running == 1
    llm.close()
    assert executor.closed
    engine: Any = fake_model.engine
    assert not engine.running
    with pytest.raises(EngineError, match="closed"):
        llm.generate("a")
    with pytest.raises(EngineError, match="closed"):
        next(stream)


def test_tokenizer_is_at_hand(fake_model: LoadedModel) -> None:
    llm = LLM.from_loaded(fake_model)
    assert llm.encode("ab") == [97, 98]
    assert llm.get_tokenizer().decode([97]) == "a"
