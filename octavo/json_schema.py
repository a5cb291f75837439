"""What can be said about a JSON schema before it is compiled: words that nobody knows would else be ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_DEPTH = 100
MAX_OPTIONAL_PROPERTIES = 300

_ONE = {
    *("items", "additionalItems", "additionalProperties", "contains", "not", "if", "then", "else"),
    *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"),
}
"""Keywords whose value is a schema"""
_MANY = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
"""... a list of schemas"""
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
"""... schemas by name"""
_PLAIN = {
    *("type", "enum", "const", "$ref", "minLength", "maxLength", "pattern", "format", "minimum", "maximum"),
    *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems"),
    *("minContains", "maxContains", "required", "minProperties", "maxProperties", "dependentRequired"),
    *("dependencies", "$recursiveRef", "$recursiveAnchor", "$dynamicRef", "$dynamicAnchor", "$vocabulary"),
}
"""Other keywords; llguidance refuses those that it does not do, by name"""
_ANNOTATIONS = {
    *("title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "id", "$anchor", "$comment", "contentMediaType", "contentEncoding", "discriminator"),
    *("externalDocs", "xml"),
}
_KEYWORDS = frozenset(_ONE | _MANY | _NAMED | _PLAIN | _ANNOTATIONS)


def check_schema(name: str, schema: Any) -> None:
    """Raises ValueError for unknown keywords, depth and too many optional properties, with the place.

    Words that begin with x- are annotations, but for x-guidance, which would change how the schema is read.
    """
    waiting = [("#", schema, 0)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"{name}: nests {depth} deep at {where[:80]}, must be at most {MAX_DEPTH}")
        if isinstance(value, Mapping):
            _check_words(name, where, value)
            waiting += [(f"{where}/{path}", inner, depth + more) for path, inner, more in _inner(value)]


def _check_words(name: str, where: str, schema: Mapping[str, Any]) -> None:
    for word, value in schema.items():
        known = word in _KEYWORDS or (word.startswith("x-") and word != "x-guidance")
        if not known and (word, value) != ("nullable", False):  # OpenAPI's: null would be a value too
            raise ValueError(f"{name}: the keyword {word[:40]!r} at {where[:80]} is not supported")
    properties, required = schema.get("properties"), schema.get("required", ())
    if isinstance(properties, Mapping) and isinstance(required, list | tuple):
        optional = len(properties) - sum(1 for each in required if isinstance(each, str) and each in properties)
        if optional > MAX_OPTIONAL_PROPERTIES:
            raise ValueError(
                f"{name}: {where[:80]} has {optional} properties that are not required, must be at most "
                f"{MAX_OPTIONAL_PROPERTIES}"
            )


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """(path, schema, depth below) of the schemas inside."""
    for word, value in schema.items():
        if word in _ONE and isinstance(value, Mapping):
            yield word, value, 1
        elif word in _MANY and isinstance(value, list):
            yield from ((f"{word}/{place}", each, 2) for place, each in enumerate(value))
        elif word in _NAMED and isinstance(value, Mapping):
            yield from ((f"{word}/{key}", each, 2) for key, each in value.items())
