"""8-bit activations: answers near the exact ones, prefix caches apart, and refusal where they would change nothing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_directory import make_random_directory
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS
from support.quantize import quantize
from support.steps import Layout, run_in_chunks
from support.weights import ArrayCheckpoint

from octavo import LLM, SamplingParams
from octavo.executors.native import NativeExecutor
from octavo.executors.reference import ReferenceExecutor
from octavo.loaders.checkpoint import open_checkpoint
from octavo.models.registry import build_program
from octavo.quantize.model import Quantization

DATA = Path(__file__).parents[1] / "models" / "data"


def quantized(name: str, *parts: str) -> ArrayCheckpoint:
    """A model's matrices in 4 bits: all, or those whose names have one of `parts`."""
    checkpoint = open_checkpoint(DATA / name)
    tensors: dict[str, Any] = dict(checkpoint.tensors)
    for key, source in checkpoint.tensors.items():
        if len(source.shape) == 2 and source.shape[1] % 32 == 0 and (not parts or any(part in key for part in parts)):
            tensors[key] = quantize(source.dequantize(), "Q4_1")
    return ArrayCheckpoint(tensors, checkpoint.config)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
@pytest.mark.parametrize("name", ["llama_head96", "gemma3", "qwen2"])
def test_logits_are_near_the_reference(name: str, instruction_set: str) -> None:
    checkpoint = quantized(name)
    program = build_program(checkpoint.config)
    layout = Layout(program, 16, 1, 120)
    tokens = np.random.default_rng(0).integers(3, program.vocab_size, 120).tolist()
    executors = [
        ReferenceExecutor(program, checkpoint),
        *(
            NativeExecutor(program, checkpoint, "auto", 2, instruction_set, "float32", activation_dtype)
            for activation_dtype in ("auto", "int8")
        ),
    ]
    for executor in executors:
        layout.reserve(executor)
    expected, exact, rough = (run_in_chunks(executor, layout, tokens, 33) for executor in executors)
    errors = [float(np.sqrt(((logits - expected) ** 2).mean() / (expected**2).mean())) for logits in (exact, rough)]
    assert errors[0] < errors[1] < 0.05
    for executor in executors:
        executor.close()


def test_a_model_without_integer_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"activation_dtype='int8': .*no linear of this model"):
        LLM(str(make_small_model(tmp_path / "model")), activation_dtype="int8")
    checkpoint = quantized("llama", "embed", "head", "q_proj", "k_proj", "v_proj")
    program = build_program(checkpoint.config)
    with pytest.raises(ValueError, match="activation_dtype='int8'"):
        NativeExecutor(program, checkpoint, activation_dtype="int8")
    with pytest.raises(ValueError, match="activation_dtype is 'int4'"):
        NativeExecutor(program, checkpoint, activation_dtype="int4")  # type: ignore[arg-type]


def test_the_reference_executor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="activation_dtype='int8': the reference executor"):
        LLM(str(make_small_model(tmp_path / "model")), executor="reference", activation_dtype="int8")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model in 4 bits."""
    path = tmp_path / "model.gguf"
    Quantization(make_random_directory(tmp_path / "llama", "llama"), path, "w4", threads=2).run()
    return path


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS)
def test_a_machine_where_they_are_slower_is_told(instruction_set: str, model: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LLM(str(model), activation_dtype="int8", kv_cache_memory="4MiB", instruction_set=instruction_set).close()
    told = [str(warning.message) for warning in caught if "activation_dtype='int8'" in str(warning.message)]
    assert len(told) == (1 if instruction_set == "amx" else 0)


def test_prefixes_are_cached_apart(model: Path) -> None:
    namespaces = set()
    for activation_dtype in ("auto", "int8"):
        with LLM(str(model), activation_dtype=activation_dtype, kv_cache_memory="4MiB", instruction_set="avx2") as llm:
            (output,) = llm.generate(["the hen"], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
            assert len(output.outputs[0].token_ids) == 4
            namespaces.add(llm.loaded.engine.config.cache_namespace)
    assert len(namespaces) == 2
