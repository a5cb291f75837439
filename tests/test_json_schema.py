import pytest

from octavo.json_schema import MAX_DEPTH, MAX_OPTIONAL_PROPERTIES, check_schema

ANY_NAME = {"minLenght": {"type": "string"}, "x-guidance": {"type": "null"}, "nullable": {}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": ANY_NAME, "required": list(ANY_NAME)},
        {"$defs": ANY_NAME, "patternProperties": {"foo": {"title": "bar", "x-order": 3}}},
        {"enum": [{"foo": 1}], "const": {"foo": 1}, "default": {"foo": 1}, "examples": [{"foo": 1}]},
        {"nullable": False, "additionalProperties": False, "items": True},
    ],
)
def test_known_words_and_annotations_pass_and_names_are_free(schema):
    check_schema("json", schema)


@pytest.mark.parametrize(
    ("schema", "word", "where"),
    [
        ({"minLenght": 3}, "minLenght", "#"),
        ({"properties": {"a": {"items": {"nullable": True}}}}, "nullable", "#/properties/a/items"),
        ({"anyOf": [{}, {"foo": 1}]}, "foo", "#/anyOf/1"),
        ({"x-guidance": {"lenient": True}}, "x-guidance", "#"),
        ({"additionalProperties": {"$defs": {"b": {"y": 0}}}}, "y", r"#/additionalProperties/\$defs/b"),
    ],
)
def test_an_unknown_word_is_refused_with_its_place(schema, word, where):
    with pytest.raises(ValueError, match=f"^json: the keyword '{word}' at {where} is not supported$"):
        check_schema("json", schema)


def test_depth_and_optional_properties_are_bounded():
    deep = {}
    for _ in range(MAX_DEPTH + 1):
        deep = {"items": deep}
    with pytest.raises(ValueError, match=f"must be at most {MAX_DEPTH}"):
        check_schema("json", deep)
    many = {f"p{i}": {} for i in range(MAX_OPTIONAL_PROPERTIES + 1)}
    with pytest.raises(ValueError, match=f"has 301 properties that are not required, .*{MAX_OPTIONAL_PROPERTIES}"):
        check_schema("json", {"properties": many})
    check_schema("json", {"properties": many, "required": ["p0"]})
