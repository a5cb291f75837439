"""Whether a value is one of a JSON schema: the keywords that the tests use, and an error for any other."""

import re
from typing import Any

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def is_of(value: Any, schema: Any, root: Any = None) -> bool:
    """Independent of what generates the values. NotImplementedError for keywords that are not known here."""
    root = schema if root is None else root
    if isinstance(schema, bool):
        return schema
    return all(_holds(word, argument, value, schema, root) for word, argument in schema.items())


def _holds(word: str, argument: Any, value: Any, schema: Any, root: Any) -> bool:
    if word in ("$defs", "title", "description"):
        return True
    if word == "$ref":
        return is_of(value, root["$defs"][argument.removeprefix("#/$defs/")], root)
    if word == "type":
        kinds = [argument] if isinstance(argument, str) else argument
        return any(isinstance(value, _TYPES[k]) and (isinstance(value, bool) <= (k == "boolean")) for k in kinds)
    if word in ("enum", "const"):
        return value in (argument if word == "enum" else [argument])
    if word in ("anyOf", "allOf"):
        return (any if word == "anyOf" else all)(is_of(value, each, root) for each in argument)
    if word in ("minimum", "maximum"):
        return not isinstance(value, int | float) or (value >= argument if word == "minimum" else value <= argument)
    if word in ("minLength", "maxLength", "pattern"):
        return not isinstance(value, str) or _string_holds(word, argument, value)
    if word in ("items", "minItems", "maxItems", "prefixItems"):
        return not isinstance(value, list) or _array_holds(word, argument, value, schema, root)
    if word in ("properties", "required", "additionalProperties"):
        return not isinstance(value, dict) or _object_holds(word, argument, value, schema, root)
    raise NotImplementedError(word)


def _string_holds(word: str, argument: Any, value: str) -> bool:
    if word == "pattern":
        return re.search(argument, value) is not None
    return len(value) >= argument if word == "minLength" else len(value) <= argument


def _array_holds(word: str, argument: Any, value: list[Any], schema: Any, root: Any) -> bool:
    if word == "items":
        return all(is_of(each, argument, root) for each in value[len(schema.get("prefixItems", ())) :])
    if word == "prefixItems":
        return all(is_of(each, one, root) for each, one in zip(value, argument, strict=False))
    return len(value) >= argument if word == "minItems" else len(value) <= argument


def _object_holds(word: str, argument: Any, value: dict[str, Any], schema: Any, root: Any) -> bool:
    if word == "required":
        return all(name in value for name in argument)
    if word == "properties":
        return all(is_of(value[name], inner, root) for name, inner in argument.items() if name in value)
    return all(is_of(value[name], argument, root) for name in value if name not in schema.get("properties", {}))
