"""What the arguments of a function are held to."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.tools.functions import Function

X: dict[str, Any] = {"properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("parameters", "closed"),
    [
        (None, True),
        ({"type": "object", "properties": {}}, True),
        (X, True),
        (X | {"required": ["x"]}, True),
        (X | {"required": ["y"]}, False),
        (X | {"required": [["x"]]}, False),
        (X | {"additionalProperties": {"type": "string"}}, False),
        (X | {"allOf": []}, False),
        ({"properties": [1]}, False),
        ({"type": "object"}, False),
        ({}, False),
    ],
)
def test_only_declared_arguments_unless_the_schema_may_mean_others(parameters: Any, closed: bool) -> None:
    schema = Function("f", None, parameters).arguments_schema()
    assert (schema.get("additionalProperties") is False) is closed
    assert schema["type"] == "object"
    assert {key: schema[key] for key in parameters or {}} == (parameters or {})


def test_templates_get_what_openai_clients_send() -> None:
    assert Function("f", "Does.", X).for_template() == {
        "type": "function",
        "function": {"name": "f", "description": "Does.", "parameters": X},
    }
    bare = Function("f").for_template()["function"]
    assert bare == {"name": "f", "parameters": {"type": "object", "properties": {}}}
