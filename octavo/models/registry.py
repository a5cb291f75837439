"""Which recipe builds which family."""

from __future__ import annotations

from octavo.models.gemma3 import build_gemma3
from octavo.models.llama import build_llama
from octavo.models.mistral import build_mistral
from octavo.models.model_config import ModelConfig
from octavo.models.qwen2 import build_qwen2
from octavo.models.qwen3 import build_qwen3
from octavo.program.operations import Program

RECIPES = {
    "gemma3": build_gemma3,
    "llama": build_llama,
    "mistral": build_mistral,
    "qwen2": build_qwen2,
    "qwen3": build_qwen3,
}


def build_program(config: ModelConfig, max_model_len: int | None = None) -> Program:
    """The program of a model.

    max_model_len is the longest context that will be served, where it is to be other than the length that
    the model was made for. It changes numbers only for dynamic rope beyond the original length
    (octavo.program.rope).

    Raises ValueError, with field and value, for a family, rope type or shape that cannot be built.
    """
    if config.family not in RECIPES:
        raise ValueError(f"family is {config.family!r}; known are {', '.join(sorted(RECIPES))}")
    if max_model_len is not None and max_model_len < 1:
        raise ValueError(f"max_model_len is {max_model_len}, must be at least 1")
    return RECIPES[config.family](config, max_model_len)
