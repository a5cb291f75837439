"""Errors of weights count by the inputs that they are multiplied by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from random_directory import config_of, random_weights, write_weights

from octavo.loaders.checkpoint import open_checkpoint
from octavo.quantize.calibration import measure_importance
from octavo.quantize.model import Quantization
from octavo.text.tokenizer import load_tokenizer

MakeDirectory = Callable[..., Path]


def _with_uneven_inputs(directory: Path, family: str) -> Path:
    """A tenth of the columns of every norm's output is 30 times as large as the others."""
    weights = random_weights(config_of(family))
    for name, values in weights.items():
        if name.endswith("layernorm.weight"):
            values[::10] = 30.0
    write_weights(directory, weights, "F32")
    return directory


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_importance_is_the_mean_square_of_each_input(random_model: MakeDirectory, family: str) -> None:
    directory = _with_uneven_inputs(random_model(family), family)
    checkpoint = open_checkpoint(directory)
    importance = measure_importance(checkpoint, load_tokenizer(directory), 1)
    matrices = {name for name, source in checkpoint.tensors.items() if len(source.shape) == 2}
    assert set(importance) == matrices - {"embed_tokens.weight"}
    for name, values in importance.items():
        assert values.shape == (checkpoint.tensors[name].shape[1],) and values.min() >= 0.01
    q_proj = importance["layers.1.self_attn.q_proj.weight"]
    large = np.zeros(len(q_proj), bool)
    large[::10] = True
    assert q_proj[large].min() > 10 * q_proj[~large].max()
    np.testing.assert_array_equal(importance["layers.1.self_attn.k_proj.weight"], q_proj)


def test_a_model_with_uneven_inputs_comes_nearer(random_model: MakeDirectory, tmp_path: Path) -> None:
    directory = _with_uneven_inputs(random_model("qwen3"), "qwen3")
    checks = [
        Quantization(directory, tmp_path / "out.gguf", "w4", force=True, calibrate=calibrate).run().check
        for calibrate in (True, False)
    ]
    assert checks[0] is not None and checks[1] is not None
    assert checks[0].mean_kl < 0.7 * checks[1].mean_kl


def test_calibration_without_memory_is_refused_at_once(
    random_model: MakeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.quantize.calibration.memory_facts", lambda: type("Facts", (), {"free": 50_000}))
    with pytest.raises(ValueError, match=r"needs about .*, 48.8 KiB are free; leave it out with --no-calibration"):
        Quantization(random_model("llama"), tmp_path / "out.gguf", "w4")
    Quantization(random_model("llama"), tmp_path / "out.gguf", "w4", calibrate=False)
    Quantization(random_model("llama"), tmp_path / "out.gguf", "w8")
