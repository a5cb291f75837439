import dataclasses
import json
import pickle

import pytest

from octavo import BeamSearchParams, SamplingParams, StructuredOutputsParams
from octavo.structured_outputs import MAX_TEXT_BYTES

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

REFUSED = [
    *[
        ("json", v)
        for v in ("", "{", "[]", "3", "true", 3, [], {"a": {1, 2}}, {"const": float("nan")}, '{"const":NaN}')
    ],
    *[("regex", v) for v in ("", 3, ["a"], "\ud800", "a" * (MAX_TEXT_BYTES + 1))],
    *[("choice", v) for v in ([], "ab", [""], [1], ["a"] * 4097, {"a": 1}, ["x" * MAX_TEXT_BYTES, "y"], ["\udfff"])],
    *[("grammar", v) for v in ("", 3, {}, "start: " + "a" * MAX_TEXT_BYTES)],
    *[("json_object", v) for v in (1, "true", None)],
]


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=lambda v: str(v)[:20].encode("ascii", "replace").decode())
def test_bad_value_is_refused_and_named(name, value):
    with pytest.raises(ValueError, match=rf"^structured_outputs\.{name}") as caught:
        StructuredOutputsParams(**{name: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("given", [{}, {"json_object": False}, {"regex": "a", "choice": ["a"]}])
def test_exactly_one_form_is_given(given):
    with pytest.raises(ValueError, match=r"^structured_outputs: has .*, must have exactly one of json, regex"):
        StructuredOutputsParams(**given)


def test_a_schema_has_one_text_and_is_copied():
    schema = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"enum": ["ä"]}}}
    params = StructuredOutputsParams(json=schema)
    assert params == StructuredOutputsParams(json=json.dumps(schema, indent=4)) and params.kind == "json"
    schema["properties"]["b"] = {"type": "string"}
    assert json.loads(params.json)["properties"]["b"] == {"type": "null"}
    assert list(json.loads(params.json)["properties"]) == ["b", "a"]


@pytest.mark.parametrize("kind", [SamplingParams, BeamSearchParams])
def test_parameters_take_them_and_nothing_like_them(kind):
    wanted = StructuredOutputsParams(json=OBJECT)
    params = kind(structured_outputs=wanted)
    assert kind.from_dict({"structured_outputs": {"json": OBJECT, "regex": None}}) == params
    assert pickle.loads(pickle.dumps(params)) == params and hash(wanted) == hash(StructuredOutputsParams(json=OBJECT))
    assert dataclasses.replace(params, max_tokens=3).structured_outputs is wanted
    with pytest.raises(ValueError, match=r"structured_outputs is \{'json'.*must be a StructuredOutputsParams"):
        kind(structured_outputs={"json": OBJECT})
    with pytest.raises(ValueError, match=r"structured_outputs\.whitespace_pattern: is not supported"):
        kind.from_dict({"structured_outputs": {"json": OBJECT, "whitespace_pattern": " "}})
