"""Rope scaling of a Hugging Face configuration, in the one spelling that ModelConfig has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from octavo.loaders.config_checks import is_finite_number, shown
from octavo.loaders.tensor_source import CheckpointError

# rope type -> (keys that it needs, keys that it may have). Anything else changes the model in a way unknown
# here.
_KEYS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "linear": (frozenset({"factor"}), frozenset()),
    "dynamic": (frozenset({"factor"}), frozenset({"original_max_position_embeddings"})),
    "yarn": (
        frozenset({"factor"}),
        frozenset(
            {
                "original_max_position_embeddings",
                "attention_factor",
                "beta_fast",
                "beta_slow",
                "mscale",
                "mscale_all_dim",
                "truncate",
            }
        ),
    ),
    "llama3": (
        frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
        frozenset(),
    ),
}
_NOT_SCALING: Final = frozenset({"rope_type", "type", "rope_theta", "finetuned"})


def normalize_rope(parameters: Mapping[str, Any] | None, where: object) -> dict[str, Any] | None:
    """`rope_scaling` or `rope_parameters` (of one kind of layer) -> {"rope_type", and that type's keys}, or
    None.

    None and the type "default" are plain rope: None. Numbers come back as they are, checked. Raises
    CheckpointError with `where` on an unknown type, an unknown or missing key, or a value out of range.
    """
    if parameters is None:
        return None
    if not isinstance(parameters, Mapping):
        raise CheckpointError(f"{where}: is {shown(parameters)}, it must be an object or null")
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    given = {key: value for key, value in parameters.items() if key not in _NOT_SCALING and value is not None}
    if given.pop("partial_rotary_factor", 1) != 1:
        raise CheckpointError(f"{where}: partial_rotary_factor is not supported, all of a head must be rotated")
    if rope_type == "default" and not given:
        return None
    if not isinstance(rope_type, str) or (rope_type not in _KEYS and rope_type != "default"):
        raise CheckpointError(f"{where}: rope type {shown(rope_type)} is unknown; known: default, {', '.join(_KEYS)}")
    needed, optional = _KEYS.get(rope_type, (frozenset(), frozenset()))
    if missing := sorted(needed - given.keys()):
        raise CheckpointError(f"{where}: rope type {rope_type} needs {', '.join(missing)}")
    if unknown := sorted(given.keys() - needed - optional):
        raise CheckpointError(f"{where}: rope type {rope_type} has the unknown keys {', '.join(unknown)}")
    for key, value in given.items():
        _check_value(key, value, where)
    if rope_type == "llama3" and not given["low_freq_factor"] < given["high_freq_factor"]:
        raise CheckpointError(
            f"{where}: low_freq_factor {given['low_freq_factor']} is not below "
            f"high_freq_factor {given['high_freq_factor']}"
        )
    return {"rope_type": rope_type, **given}


def _check_value(key: str, value: Any, where: object) -> None:
    if key == "truncate":
        if not isinstance(value, bool):
            raise CheckpointError(f"{where}: {key} is {value!r}, it must be true or false")
        return
    if not is_finite_number(value):
        raise CheckpointError(f"{where}: {key} is {shown(value)}, it must be a finite number")
    least = 1 if key in ("factor", "original_max_position_embeddings") else 0
    if value < least or (value == 0 and key not in ("mscale", "mscale_all_dim")):
        raise CheckpointError(f"{where}: {key} is {value}, it must be {'at least 1' if least else 'positive'}")
    if key == "original_max_position_embeddings" and not isinstance(value, int):
        raise CheckpointError(f"{where}: {key} is {value!r}, it must be an integer")
