"""octavo generate: JSON lines in, JSON lines out, in order, whatever the lines are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.generate import answer_lines
from octavo.llm import LLM
from octavo.loading import LoadedModel


def answers(octavo: Any, tmp_path: Path, lines: list[Any], *options: str) -> tuple[list[Any], Any]:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(
        b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    )
    result = octavo("generate", "smollm2", "--input", str(source), "--output", str(target), *options)
    return [json.loads(line) for line in target.read_text().splitlines()], result


def test_results_are_in_input_order_with_their_fields(octavo: Any, tmp_path: Path) -> None:
    lines = [
        {"prompt": "a long prompt", "max_tokens": 50},
        {"prompt": [97, 98], "max_tokens": 1, "id": "second"},
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
    ]
    results, result = answers(octavo, tmp_path, lines)
    assert result.exit_code == 0
    assert [each["text"] for each in results] == ["A LONG PROMPT", "A", "USER"]
    assert [each["finish_reason"] for each in results] == ["stop", "length", "length"]
    assert results[1] == {
        "id": "second",
        "text": "A",
        "token_ids": [65],
        "finish_reason": "length",
        "stop_reason": None,
        "prompt_token_ids": [97, 98],
        "num_cached_tokens": 3,
    }


BAD_LINES: list[tuple[Any, str]] = [
    (b"not json", "is not JSON"),
    (b'{"prompt": "a', "is not JSON"),
    (b"\xff\xfe", "is not UTF-8"),
    (b"[1]", "must be a JSON object, not list"),
    (b"null", "must be a JSON object"),
    (b'{"prompt": "a", "temperature": NaN}', "NaN is no number"),
    (b"[" * 100_000, "is not JSON"),
    ({}, 'one of the keys "prompt" and "messages"'),
    ({"prompt": "a", "messages": []}, 'one of the keys "prompt" and "messages"'),
    ({"prompt": "a", "maximum": 3}, "unknown key 'maximum'"),
    ({"prompt": "a", "structured_outputs": {"regex": "(a"}}, "unclosed group"),
    ({"prompt": "a", "structured_outputs": {"regexp": "a"}}, "structured_outputs.regexp: is not supported"),
    ({"prompt": ""}, "prompt: must not be empty"),
    ({"prompt": []}, "prompt: must not be empty"),
    ({"prompt": None}, "prompt: must be text or a list of token ids, not NoneType"),
    ({"prompt": {"prompt": "a"}}, "must be text or a list"),
    ({"prompt": [1, "a"]}, "prompt_token_ids[1]='a'"),
    ({"prompt": [99999]}, "prompt_token_ids[0]=99999"),
    ({"prompt": "x" * 4096}, "max_model_len=4096"),
    ({"prompt": "a\ud800"}, "lone surrogate"),
    ({"messages": []}, "messages: must be a list with at least one message"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user", "content": "a"}], "cache_salt": "s"}, "cache_salt"),
    ({"prompt": "a", "tools": []}, "tools"),
    ({"prompt": "a", "temperature": "hot"}, "temperature"),
    ({"prompt": "a", "n": 10**9}, "n is 1000000000"),
    ({"prompt": "a", "stop": [""]}, "stop"),
    ({"prompt": "a", "logit_bias": {"99999": 1}}, "logit_bias"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_bad_line_becomes_an_error_in_its_place(octavo: Any, tmp_path: Path, line: Any, message: str) -> None:
    good = {"prompt": "ok", "max_tokens": 9}
    results, result = answers(octavo, tmp_path, [good, line, good])
    assert result.exit_code == 1
    assert [each.get("text") for each in results] == ["OK", None, "OK"]
    assert results[1]["error"]["line"] == 2
    assert message in results[1]["error"]["message"]
    assert "1 of 3 lines were not answered" in result.stderr


def test_request_that_never_fits_is_an_error_in_its_place(octavo: Any, tmp_path: Path, fake_model: LoadedModel) -> None:
    engine: Any = fake_model.engine
    engine.capacity = 3
    results, result = answers(octavo, tmp_path, [{"prompt": "abcd", "id": 7}, {"prompt": "abc"}])
    assert result.exit_code == 1
    assert results[0] == {"id": 7, "error": {"line": 1, "message": "prompt needs 4 slots of 3"}}
    assert results[1]["text"] == "ABC"


def test_empty_lines_are_left_out_and_lines_are_counted_with_them(octavo: Any, tmp_path: Path) -> None:
    results, result = answers(octavo, tmp_path, [b"", {"prompt": "a"}, b"   ", b"oops"])
    assert [each.get("text") for each in results] == ["A", None]
    assert results[1]["error"]["line"] == 4
    assert result.exit_code == 1


def test_empty_input_is_fine(octavo: Any, tmp_path: Path) -> None:
    results, result = answers(octavo, tmp_path, [])
    assert (results, result.exit_code) == ([], 0)


def test_options_hold_where_a_line_says_nothing(octavo: Any, tmp_path: Path) -> None:
    lines = [{"prompt": "abcdef"}, {"prompt": "abcdef", "max_tokens": 2}]
    results, _ = answers(octavo, tmp_path, lines, "--max-tokens", "4")
    assert [each["text"] for each in results] == ["ABCD", "AB"]


def test_logprobs_where_asked(octavo: Any, tmp_path: Path) -> None:
    (result,), _ = answers(octavo, tmp_path, [{"prompt": "ab", "max_tokens": 1, "logprobs": 1, "prompt_logprobs": 0}])
    top = {"token_id": 65, "token": "A", "logprob": -0.5, "rank": 1}
    chosen = {"token_id": 65, "token": "A", "logprob": -0.5, "rank": 1}
    assert result["logprobs"] == [{**chosen, "top": [top]}]
    assert result["prompt_logprobs"] == [
        None,
        {"token_id": 98, "token": "b", "logprob": -0.5, "rank": 1, "top": []},
    ]
    assert result["cumulative_logprob"] == -0.5


def test_several_sequences_are_in_outputs(octavo: Any, tmp_path: Path) -> None:
    (result,), _ = answers(octavo, tmp_path, [{"prompt": "ab", "n": 2}])
    assert [each["index"] for each in result["outputs"]] == [0, 1]
    assert [each["text"] for each in result["outputs"]] == ["AB", "AB"]
    assert "text" not in result


def test_standard_input_and_output(octavo: Any) -> None:
    result = octavo("generate", "smollm2", "--input", "-", "--output", "-", input='{"prompt": "é"}\n')
    assert json.loads(result.stdout)["text"] == "É"


def test_huge_input_never_sits_in_memory(fake_model: LoadedModel) -> None:
    """With the first answer far longer than all others, lines are still read only as far as the window."""
    llm = LLM.from_loaded(fake_model)
    read = 0
    furthest = 0

    def lines() -> Iterator[bytes]:
        nonlocal read
        for number in range(300):
            read += 1
            yield json.dumps({"prompt": "x" * 900 if number == 0 else "y", "max_tokens": 1000}).encode()

    texts = []
    for written, (line, _) in enumerate(answer_lines(llm, lines(), {}, window=16), 1):
        furthest = max(furthest, read - written)
        texts.append(json.loads(line)["text"])
    assert texts == ["X" * 900, *["Y"] * 299]
    assert furthest <= 16
    engine: Any = fake_model.engine
    assert engine.most_running <= 16
