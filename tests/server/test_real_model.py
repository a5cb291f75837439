"""Scores of prompts, and beams, over HTTP equal transformers', with the prefix cache on and warm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.real_models import read_goldens
from support.running_server import Running, running

from octavo import AsyncLLM
from octavo.loaders.aliases import ALIASES
from octavo.loaders.hub import octavo_home
from octavo.text.tokenizer import Tokenizer

NAME = "smollm2"


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    path = octavo_home() / "models" / ALIASES[NAME].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with running(AsyncLLM(str(path), dtype="float32", kv_cache_memory="64MiB", block_size=16)) as server:
        yield server


@pytest.mark.real_model
def test_echo_scores_equal_transformers(server: Running) -> None:
    for golden in read_goldens(NAME)[::20]:
        ids = golden.prompt_token_ids + golden.token_ids
        server.complete(prompt=ids, max_tokens=1)
        body = {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 0}
        first = server.complete(**body).json()["choices"][0]["logprobs"]
        assert len(first["tokens"]) == len(ids)
        scores = first["token_logprobs"][len(golden.prompt_token_ids) :]
        assert scores == pytest.approx(golden.logprobs, abs=1e-3)
        again = server.complete(**body | {"max_tokens": 1}).json()["choices"][0]["logprobs"]
        assert again["token_logprobs"][: len(ids)] == first["token_logprobs"]
    server.assert_well()


@pytest.mark.real_model
@pytest.mark.parametrize("stream", [False, True])
def test_beams_equal_transformers(server: Running, stream: bool) -> None:
    rows = json.loads((Path(__file__).parents[1] / "data" / f"beams_{NAME}.json").read_text())
    prompts = read_goldens(NAME)
    for row in [row for row in rows if row["params"]["beam_width"] == 4][::4]:
        params = dict(row["params"])
        body = {
            "use_beam_search": True,
            "n": params.pop("beam_width"),
            "stop_token_ids": row["eos_token_ids"],
            **params,
        }
        body |= {"prompt": prompts[row["prompt"]].prompt_token_ids, "include_stop_str_in_output": True}
        if stream:
            choices = [choice for event in server.events("/v1/completions", **body) for choice in event["choices"]]
        else:
            choices = server.complete(**body).json()["choices"]
        tokenizer: Tokenizer = server.llm.get_tokenizer()
        assert [choice["text"] for choice in choices] == [tokenizer.decode(beam) for beam in row["beams"]]
        assert [choice["score"] for choice in choices] == pytest.approx(row["scores"], abs=2e-4)
    server.assert_well()
