"""Many JSON schemas of every kind, whose values are short."""

import random
from typing import Any

_NAMES = ("name", "age", "city", "email", "tags", "price", "active", "größe", "id", "first name")
_TEXTS = ("red", "green", "blue", 'a "quoted" word', "naïve", "\\", "line\nbreak", "日本", "")


def varied_schemas(number: int) -> list[dict[str, Any]]:
    """The same ones each time."""
    choose = random.Random(7)
    return [_object(choose, 1 + place % 2) for place in range(number)]


def _object(choose: random.Random, depth: int) -> dict[str, Any]:
    names = choose.sample(_NAMES, choose.randint(1, 3))
    required = [name for name in names if choose.random() < 0.8] or names[:1]
    properties = {name: _schema(choose, depth - 1) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(choose: random.Random, depth: int) -> dict[str, Any]:
    low = choose.randint(-50, 50)
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": choose.randint(0, 8)},
        {"type": "string", "minLength": 2, "maxLength": 6},
        {"type": "string", "pattern": "^[A-Z][a-z]{1,6}$"},
        {"type": "string", "pattern": "^[0-9]{3}-[0-9]{4}$"},
        {"type": "integer", "minimum": low, "maximum": low + choose.randint(0, 200)},
        {"type": "number", "minimum": low, "maximum": low + 1},
        {"type": "boolean"},
        {"type": ["null", "boolean"]},
        {"enum": choose.sample(_TEXTS, 3)},
        {"enum": [1, "one", None, True, [1, 2], {"a": "b"}]},
        {"const": choose.choice(_TEXTS)},
        {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 9}]},
    ]
    if depth > 0:
        kinds += [
            {"type": "array", "items": _schema(choose, depth - 1), "minItems": 1, "maxItems": 3},
            {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": 7}], "items": False, "minItems": 2},
            _object(choose, depth),
        ]
    return choose.choice(kinds)
