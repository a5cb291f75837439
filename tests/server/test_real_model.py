"""Scores of prompts over HTTP equal transformers', with the prefix cache on and warm."""

from __future__ import annotations

import pytest
from support.real_models import read_goldens
from support.running_server import running

from octavo import AsyncLLM
from octavo.loaders.aliases import ALIASES
from octavo.loaders.hub import octavo_home

NAME = "smollm2"


@pytest.mark.real_model
def test_echo_scores_equal_transformers() -> None:
    path = octavo_home() / "models" / ALIASES[NAME].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with running(AsyncLLM(str(path), dtype="float32", kv_cache_memory="64MiB", block_size=16)) as server:
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
