import pytest

from octavo.engine.engine_config import EngineConfig


@pytest.mark.parametrize(
    "field",
    [
        "num_blocks",
        "block_size",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_logits_rows",
    ],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
def test_sizes_are_positive_integers(field, value):
    sizes = {"num_blocks": 1, "block_size": 1, "max_model_len": 1} | {field: value}
    with pytest.raises(ValueError, match=f"{field}={value!r}"):
        EngineConfig(**sizes)
