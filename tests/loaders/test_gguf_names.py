"""Names in GGUF files and canonical ones are each other's inverse."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_directory import config_of

from octavo.loaders.gguf_names import canonical_name, gguf_name
from octavo.loaders.hf_config import hf_model_config
from octavo.models.registry import RECIPES, build_program


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_every_weight_of_a_family_has_a_name_in_a_file(family: str) -> None:
    config, _ = hf_model_config(config_of(family), {}, Path("config.json"))
    names = [gguf_name(name, family) for name in build_program(config).weights]
    assert len(set(names)) == len(names)
    assert [canonical_name(name, family) for name in names] == list(build_program(config).weights)


@pytest.mark.parametrize("name", ["embed.weight", "layers.0.self_attn.sinks.weight", "layer.0.mlp.up_proj.weight", ""])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="has no name in a GGUF file of the family llama"):
        gguf_name(name, "llama")
