"""octavo run: one answer or a chat."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_model import make_fake_model

from octavo.cli.run import DEFAULT_MODEL, interrupt_flag, names_model, split_arguments, stream_to_stdout
from octavo.llm import LLM
from octavo.loading import LoadedModel
from octavo.sampling_params import SamplingParams
from octavo.structured_outputs import StructuredOutputsParams


def test_answer_is_streamed_and_the_exit_code_is_0(octavo: Any) -> None:
    result = octavo("run", "smollm2", "hi")
    assert result.exit_code == 0
    assert result.stdout == "USER: HI\nASSISTANT: \n"
    assert octavo.loaded_with.model == "smollm2"


def test_lone_prompt_goes_to_the_default_model(octavo: Any) -> None:
    assert octavo("run", "why is the sky blue?").stdout.startswith("USER: WHY IS THE SKY BLUE?")
    assert octavo.loaded_with.model == DEFAULT_MODEL


def test_which_lone_argument_names_a_model(tmp_path: Path) -> None:
    assert split_arguments(None, None) == (DEFAULT_MODEL, None)
    assert split_arguments("smollm2", None) == ("smollm2", None)
    assert split_arguments(str(tmp_path), None) == (str(tmp_path), None)
    assert split_arguments("hello there", None) == (DEFAULT_MODEL, "hello there")
    assert split_arguments("hello", "there") == ("hello", "there")
    assert names_model("owner/model")
    assert names_model("missing.gguf")
    assert not names_model("true/false or what?")
    assert not names_model("x" * 10_000)


def test_options_reach_engine_and_sampling(octavo: Any, fake_model: LoadedModel) -> None:
    result = octavo(
        *("run", "smollm2", "hello", "--raw", "--max-tokens", "3", "--no-prefix-caching", "--threads", "1"),
        *(
            "--kv-cache-memory",
            "1MiB",
            "--block-size",
            "16",
            "--dtype",
            "float32",
            "--kv-cache-dtype",
            "int8",
            "--max-model-len",
            "99",
        ),
    )
    assert result.stdout == "HEL\n"
    options = octavo.loaded_with
    assert (options.block_size, options.kv_cache_bytes, options.threads) == (16, 2**20, 1)
    assert (options.enable_prefix_caching, options.dtype, options.max_model_len) == (False, "float32", 99)
    assert options.kv_cache_dtype == "int8"
    octavo("run", "smollm2", "hello", "--activation-dtype", "int8")
    assert octavo.loaded_with.activation_dtype == "int8"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--block-size", "12"], "block_size=12"),
        (["--kv-cache-memory", "lots"], "kv_cache_memory='lots'"),
        (["--temperature", "-1"], "temperature"),
        (["--max-tokens", "0"], "max_tokens"),
        (["--activation-dtype", "int8", "--dtype", "float32"], "activation_dtype='int8'"),
        (["--threads", "x"], "not a valid integer"),
        (["--executor", "magic"], "magic"),
    ],
)
def test_bad_options_are_usage_errors(octavo: Any, arguments: list[str], message: str) -> None:
    result = octavo("run", "smollm2", "hi", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert octavo.loaded_with is None


def test_an_answer_may_be_given_a_form(octavo: Any, fake_model: LoadedModel, tmp_path: Path) -> None:
    seen = []
    add = fake_model.engine.add_request
    fake_model.engine.add_request = lambda request: (seen.append(request.params.structured_outputs), add(request))
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    forms = (["--json-schema", str(schema)], ["--regex", "a+"], ["--choice", "a", "--choice", "b"])
    for options in forms:
        assert octavo("run", "smollm2", "hello", *options).exit_code == 0
    assert seen == [
        StructuredOutputsParams(json={"type": "object"}),
        StructuredOutputsParams(regex="a+"),
        StructuredOutputsParams(choice=["a", "b"]),
    ]
    for options, message in (
        (["--regex", "a", "--choice", "b"], "regex and choice"),
        (["--json-schema", str(tmp_path / "missing")], "No such file"),
        (["--regex", "(a"], "unclosed group"),
    ):
        result = octavo("run", "smollm2", "hello", *options)
        assert result.exit_code in (1, 2) and message in result.output and "Traceback" not in result.output
    assert len(seen) == 3


def test_bad_prompt_is_an_error_without_a_traceback(octavo: Any) -> None:
    result = octavo("run", "smollm2", "", "--raw")
    assert result.exit_code == 1
    assert "prompt: must not be empty" in result.stderr


def test_missing_model_is_an_error_without_a_traceback(monkeypatch: pytest.MonkeyPatch, octavo: Any) -> None:
    def load(options: Any, progress: Any = None) -> None:
        raise OSError("no such model")

    monkeypatch.setattr("octavo.loading.load", load)
    result = octavo("run", "nothing.gguf", "hi")
    assert result.exit_code == 1
    assert result.stderr == "Error: no such model\n"


def test_prompt_from_standard_input(octavo: Any) -> None:
    assert octavo("run", "smollm2", "-", "--raw", input="two\nlines").stdout == "TWO\nLINES\n"


def test_chat_remembers_until_it_is_cleared(octavo: Any, fake_model: LoadedModel) -> None:
    prompts: list[str] = []
    engine: Any = fake_model.engine
    engine.answer = lambda request: f"answer {len(prompts)}"
    add = engine.add_request

    def record(request: Any) -> None:
        prompts.append(bytes(request.prompt_token_ids).decode())
        add(request)

    engine.add_request = record
    result = octavo("run", "smollm2", "--system", "Be brief.", input="one\n\ntwo\n/clear\nthree\n/bye\nfour\n")
    assert result.exit_code == 0
    assert result.stdout == "answer 1\nanswer 2\nanswer 3\n"
    system = "system: Be brief.\n"
    assert prompts == [
        f"{system}user: one\nassistant: ",
        f"{system}user: one\nassistant: answer 1\nuser: two\nassistant: ",
        f"{system}user: three\nassistant: ",
    ]


def test_chat_survives_a_prompt_that_is_too_long(octavo: Any) -> None:
    result = octavo("run", "smollm2", input="x" * 5000 + "\nshort\n")
    assert result.exit_code == 0
    assert "max_model_len=4096" in result.stderr
    assert result.stdout == "USER: SHORT\nASSISTANT: \n"


def test_model_without_a_template_completes(octavo: Any, fake_model: LoadedModel) -> None:
    tokenizer: Any = fake_model.tokenizer
    tokenizer.chat_template = None
    assert octavo("run", "smollm2", "once upon").stdout == "ONCE UPON\n"
    assert octavo("run", "smollm2", "once upon", "--system", "x").exit_code == 2


def test_ctrl_c_stops_the_answer_and_aborts_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_fake_model(lambda _: "endless " * 100)
    engine: Any = model.engine

    def press_ctrl_c() -> None:
        if engine.steps == 5:
            os.kill(os.getpid(), signal.SIGINT)

    engine.before_step = press_ctrl_c
    llm = LLM.from_loaded(model)
    text, stopped = stream_to_stdout(llm.stream("p", SamplingParams(max_tokens=500)))
    assert stopped
    assert 0 < len(text) < 20
    assert capsys.readouterr().out == text + "\n"
    assert engine.aborted
    assert not engine.running


def test_second_ctrl_c_interrupts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interrupt_flag() as interrupted:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("was not interrupted")
