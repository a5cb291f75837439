"""Outputs that wander through schemas at random, without a model, are values of them."""

import json
import random
import re

import pytest
from byte_vocabulary import EOS, allowed, wanted
from support.json_check import is_of
from support.schemas import varied_schemas

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "boolean"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
MORE = [
    TREE,
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}]},
    {"allOf": [{"minimum": 3}, {"type": "integer", "maximum": 5}]},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 9}},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "additionalProperties": False},
    {"type": "array", "items": {"type": "array", "items": {"const": 1}, "maxItems": 1}, "minItems": 3, "maxItems": 3},
    {"type": ["string", "number"], "maxLength": 3, "minimum": -1, "maximum": 1},
    {"title": "anything"},
]


def wander(constraint, choose, most=300):
    """An output of random allowed bytes that ends as soon as it may; None where it has not ended by then."""
    output = b""
    for _ in range(most):
        tokens = allowed(constraint)
        if EOS in tokens:
            return output.decode()
        token = choose.choice(sorted(token for token in tokens if token < 256))
        output += bytes([token])
        constraint.advance(token)
    return None


@pytest.mark.parametrize("part", range(4))
def test_what_ends_is_a_value_of_its_schema_without_blanks(compiler, part):
    choose = random.Random(part)
    ended = 0
    schemas = [*MORE, *varied_schemas(100)][part::4]
    for schema in schemas:
        for _ in range(3):
            text = wander(compiler.constraint(wanted(json=schema)), choose)
            if text is not None:
                ended += 1
                assert is_of(json.loads(text), schema), (schema, text)
                assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", text))
    assert ended > 2 * len(schemas)
