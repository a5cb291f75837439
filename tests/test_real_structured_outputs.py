"""Structured outputs of the real models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.json_check import is_of
from support.real_models import NAMES
from support.schemas import varied_schemas

from octavo import LLM, BeamSearchParams, SamplingParams, StructuredOutputsParams
from octavo.guidance.vocabulary import build_vocabulary
from octavo.loaders.aliases import ALIASES
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.hub import octavo_home
from octavo.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.real_model
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "colours": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
    },
    "required": ["name", "age", "colours"],
    "additionalProperties": False,
}


def real_model(name: str) -> str:
    path = octavo_home() / "models" / ALIASES[name].filename
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return str(path)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(real_model("smollm2"), kv_cache_memory="256MiB", max_model_len=1024) as llm:
        yield llm


def json_of(schema: dict[str, Any], **more: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 96, **more}, structured_outputs=StructuredOutputsParams(json=schema))


@pytest.mark.parametrize("name", NAMES)
def test_the_vocabulary_has_the_exact_bytes_of_every_token(name: str) -> None:
    checkpoint = open_checkpoint(octavo_home() / "models" / ALIASES[name].filename) if real_model(name) else None
    assert checkpoint is not None
    tokenizer = load_tokenizer(checkpoint.tokenizer_files())
    vocabulary = build_vocabulary(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids)
    control = tokenizer.control_ids
    for token_id in range(tokenizer.vocab_size):
        data = tokenizer.token_bytes(token_id)
        if token_id in control or data == b"\xff":  # a byte that no text has marks control tokens there
            assert vocabulary.is_special_token(token_id)
        else:
            assert vocabulary.decode_bytes([token_id]) == data
    assert set(vocabulary.eos_tokens) == set(tokenizer.eos_token_ids)


def test_a_hundred_schemas_give_values_of_them(llm: LLM) -> None:
    schemas = varied_schemas(100)
    params = [json_of(schema, temperature=place % 3 / 2, seed=place) for place, schema in enumerate(schemas)]
    prompts = [f"Example {place} of JSON data: " for place in range(len(schemas))]
    outputs = llm.generate(prompts, params)
    ended = 0
    for schema, output in zip(schemas, outputs, strict=True):
        (each,) = output.outputs
        assert output.error is None and each.finish_reason in ("stop", "length")
        if each.finish_reason == "stop":
            ended += 1
            value = json.loads(each.text)
            assert is_of(value, schema), (schema, each.text)
    assert ended >= 95


def test_greedy_json_of_small_models_ends_and_has_no_blanks(llm: LLM) -> None:
    """Where a small model alone goes on with blanks until the limit."""
    params = SamplingParams(temperature=0, max_tokens=256, structured_outputs=StructuredOutputsParams(json_object=True))
    for output in llm.generate(["Answer in JSON: who are you? ", "{", "A JSON object:\n\n\n"], params):
        (each,) = output.outputs
        if each.finish_reason == "stop":
            assert isinstance(json.loads(each.text), dict)
        outside = re.sub(r'"(\\.|[^"\\])*("|$)', '""', each.text)
        assert not re.search(r"\s", outside)


def test_the_same_bytes_alone_together_and_cached(llm: LLM) -> None:
    prompts = [f"Person number {place} as JSON: " for place in range(6)]
    params = [json_of(PERSON, seed=place, n=1 + place % 2) for place in range(6)]
    together = [[each.token_ids for each in output.outputs] for output in llm.generate(prompts, params)]
    alone = [[each.token_ids for each in llm.generate(*one)[0].outputs] for one in zip(prompts, params, strict=True)]
    assert together == alone


def test_beams_are_values_of_the_schema(llm: LLM) -> None:
    params = BeamSearchParams(4, 80, structured_outputs=StructuredOutputsParams(json=PERSON))
    (output,) = llm.beam_search("A person as JSON: ", params)
    assert len({each.text for each in output.outputs}) >= 2
    for each in output.outputs:
        assert each.finish_reason == "stop" and is_of(json.loads(each.text), PERSON)
