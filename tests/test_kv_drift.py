"""The accuracy guard of KV in int8: measured once, quiet where it is harmless, loud where it is not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_model import make_small_model
from support.weights import ArrayCheckpoint, ArrayTensor, random_checkpoint, small_config

from octavo import LLM, SamplingParams
from octavo.executors.native import NativeExecutor
from octavo.executors.reference import ReferenceExecutor
from octavo.kv_drift import KV_DRIFT_BOUND, KVDrift, find_kv_drift, measure_kv_drift
from octavo.loading import warn_of_kv_drift
from octavo.models.registry import build_program


class Letters:
    """A tokenizer of bytes."""

    eos_token_ids = ()

    def encode(self, text: str) -> list[int]:
        return [byte % 60 + 3 for byte in text.encode()]


def make_executor(kind: type[Any], outlier: float) -> tuple[Any, Any]:
    """Keys of one head have such a bias in two dims that 8 bits cannot hold anything beside it, rotated or not."""
    program = build_program(small_config(family="qwen2", head_dim=8, max_position_embeddings=400))
    tensors = dict(random_checkpoint(program).tensors)
    for name, tensor in tensors.items():
        if name.endswith("k_proj.bias"):
            tensors[name] = ArrayTensor(name, np.array([outlier, -outlier, *[0] * 14], np.float32))
        elif name.endswith("q_proj.weight"):
            tensors[name] = ArrayTensor(name, 8 * tensor.array)
    return program, kind(program, ArrayCheckpoint(tensors))


@pytest.mark.parametrize("kind", [NativeExecutor, ReferenceExecutor])
def test_drift_is_small_without_outliers_and_large_with_them(kind: type[Any]) -> None:
    program, executor = make_executor(kind, 0)
    quiet = measure_kv_drift(executor, program, Letters().encode)
    assert quiet.positions == 256
    assert 0 < quiet.mean_kl < KV_DRIFT_BOUND
    program, executor = make_executor(kind, 1000)
    loud = measure_kv_drift(executor, program, Letters().encode)
    assert loud.mean_kl > KV_DRIFT_BOUND
    assert loud.top1_agreement < quiet.top1_agreement


def test_the_guard_warns_above_the_bound_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path))
    for fingerprint, outlier in (("harmless", 0), ("outliers", 1000)):
        program, executor = make_executor(NativeExecutor, outlier)
        tokenizer: Any = Letters()
        if outlier:
            with pytest.warns(RuntimeWarning, match="kv_cache_dtype='int8'.* more than the bound of 0.01"):
                warn_of_kv_drift(executor, program, tokenizer, fingerprint)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warn_of_kv_drift(executor, program, tokenizer, fingerprint)


def test_a_model_file_is_measured_once(tmp_path: Path) -> None:
    program, executor = make_executor(NativeExecutor, 0)
    texts: list[str] = []

    def encode(text: str) -> list[int]:
        texts.append(text)
        return Letters().encode(text)

    first = find_kv_drift(executor, program, encode, "a", tmp_path)
    assert find_kv_drift(executor, program, encode, "a", tmp_path) == first
    assert len(texts) == 1
    find_kv_drift(executor, program, encode, "b", tmp_path)
    assert len(texts) == 2
    (note, _) = sorted((tmp_path / "kv_drift").iterdir())
    assert KVDrift(**json.loads(note.read_text())).positions == 256
    note.write_text('{"positions": 3}')
    for fingerprint in "ab":
        assert find_kv_drift(executor, program, encode, fingerprint, tmp_path).positions == 256
    assert len(texts) == 3


def test_a_home_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    program, executor = make_executor(NativeExecutor, 0)
    (tmp_path / "kv_drift").write_text("a file")
    assert find_kv_drift(executor, program, Letters().encode, "a", tmp_path).positions == 256


@pytest.mark.parametrize("executor", ["native", "reference"])
def test_llm_with_int8_kv(executor: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OCTAVO_HOME", str(tmp_path / "home"))
    model = str(make_small_model(tmp_path / "model"))
    options: dict[str, Any] = dict(executor=executor, dtype="float32", kv_cache_memory="4MiB", block_size=8)
    params = SamplingParams(temperature=0, max_tokens=6)
    answers, block_bytes = {}, {}
    namespaces = set()
    for kv_cache_dtype in ("auto", "int8"):
        llm = LLM(model, kv_cache_dtype=kv_cache_dtype, **options)
        answers[kv_cache_dtype] = [
            output.outputs[0].token_ids for output in llm.generate(["Hello", "Hello you"], params)
        ]
        block_bytes[llm.loaded.kv_cache_dtype] = llm.loaded.block_bytes
        namespaces.add(llm.loaded.engine.config.cache_namespace)
        alone = llm.generate("Hello you", params)[0].outputs[0].token_ids
        assert alone == answers[kv_cache_dtype][1]
    assert block_bytes["int8"] < 0.4 * block_bytes["float32"]
    assert len(namespaces) == 2
    assert list((tmp_path / "home" / "kv_drift").iterdir())
