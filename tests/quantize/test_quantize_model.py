"""Whole models through quantisation: they load, generate, and stay near the original; broken ones are refused."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_directory import config_of, random_weights, write_weights

from octavo import LLM, SamplingParams
from octavo.loaders import gguf_writer
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.gguf import read_gguf
from octavo.loaders.gguf_writer import copied_metadata, scalar
from octavo.models.registry import RECIPES
from octavo.quantize.model import Quantization, Quantized

MakeDirectory = Callable[..., Path]
PROMPT = "the hen and the tin"


def _quantize(model: Path, out: Path, target: Any = "w4", **options: Any) -> Quantized:
    return Quantization(model, out, target, threads=2, **options).run()


def _answer(model: Path) -> list[int]:
    with LLM(str(model), max_num_seqs=1, dtype="float32", threads=1) as llm:
        outputs = llm.generate([PROMPT], SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True))
        return list(outputs[0].outputs[0].token_ids)


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_every_family_is_quantised_loads_and_generates(
    random_model: MakeDirectory, tmp_path: Path, family: str
) -> None:
    directory = random_model(family)
    eight = _quantize(directory, tmp_path / "8.gguf", "w8")
    four = _quantize(directory, tmp_path / "4.gguf", "w4")
    assert eight.check is not None and four.check is not None
    assert eight.check.passed and eight.check.mean_kl < 0.002 and eight.check.top1_agreement > 0.9
    assert four.check.passed and eight.check.mean_kl < four.check.mean_kl < 0.1
    assert four.new_bytes == (tmp_path / "4.gguf").stat().st_size < eight.new_bytes
    assert len(_answer(tmp_path / "4.gguf")) == 8
    assert _answer(tmp_path / "8.gguf")[:2] == _answer(directory)[:2]


@pytest.mark.parametrize("family", sorted(RECIPES))
def test_weights_keep_their_place(random_model: MakeDirectory, tmp_path: Path, family: str) -> None:
    """Rotated rows among them: tensor by tensor, the file's values are those of the directory."""
    directory = random_model(family)
    _quantize(directory, tmp_path / "8.gguf", "w8", check=False)
    original, written = open_checkpoint(directory), open_checkpoint(tmp_path / "8.gguf")
    assert set(written.tensors) == set(original.tensors)
    for name, source in original.tensors.items():
        expected = source.dequantize()
        np.testing.assert_allclose(written.tensors[name].dequantize(), expected, atol=np.abs(expected).max() / 200)


def test_kinds_of_both_formats(random_model: MakeDirectory, tmp_path: Path) -> None:
    directory = random_model("qwen2", dtype="F16", hidden_size=64, intermediate_size=80)
    assert _quantize(directory, tmp_path / "4.gguf", check=False).kinds == {
        "F32": 11,  # 5 norms, 6 biases
        "Q4_1": 10,
        "Q8_0": 4,
        "F16": 2,  # rows of 80 are no whole blocks
    }
    tensors = read_gguf(tmp_path / "4.gguf").tensors
    assert {name for name, tensor in tensors.items() if tensor.kind == "Q8_0"} == {
        "token_embd.weight",
        "output.weight",
        "blk.0.attn_v.weight",
        "blk.1.attn_v.weight",
    }
    assert tensors["blk.1.ffn_down.weight"].kind == "F16"
    metadata = read_gguf(tmp_path / "4.gguf").metadata
    assert (metadata["general.file_type"], metadata["general.quantization_version"]) == (3, 2)


def test_a_gguf_file_keeps_its_metadata_and_its_tokenizer(random_model: MakeDirectory, tmp_path: Path) -> None:
    # A file of higher precision: rows of 80 stay F32, so nothing in it is quantised.
    directory = random_model("llama", dtype="F32", hidden_size=80, intermediate_size=80, head_dim=20)
    first, second = tmp_path / "1.gguf", tmp_path / "2.gguf"
    _quantize(directory, first, check=False)
    result = _quantize(first, second, "w8")
    assert result.check is not None and result.check.mean_kl < 1e-4
    ours, theirs = read_gguf(second), read_gguf(first)
    assert copied_metadata(ours) == copied_metadata(theirs) | {"general.file_type": scalar("u32", 7)}
    for name, tensor in theirs.tensors.items():
        assert np.array_equal(ours.tensors[name].raw, tensor.raw), name


def test_a_quantised_model_is_refused_but_on_request(random_model: MakeDirectory, tmp_path: Path) -> None:
    eight, four = tmp_path / "8.gguf", tmp_path / "4.gguf"
    _quantize(random_model("gemma3"), eight, "w8", check=False)
    with pytest.raises(ValueError, match=r"is quantised already \(15 x Q8_0\).*--requantize"):
        Quantization(eight, four, "w4")
    result = _quantize(eight, four, requantize=True)
    assert result.check is not None and result.check.passed
    # What has its kind already is copied.
    ours, theirs = read_gguf(four).tensors, read_gguf(eight).tensors
    assert np.array_equal(ours["token_embd.weight"].raw, theirs["token_embd.weight"].raw)
    assert ours["blk.0.ffn_up.weight"].kind == "Q4_1"


def test_a_file_may_replace_itself(random_model: MakeDirectory, tmp_path: Path) -> None:
    file, other = tmp_path / "1.gguf", tmp_path / "2.gguf"
    _quantize(random_model("llama"), file, "w8", check=False)
    _quantize(file, other, requantize=True, check=False)
    result = _quantize(file, file, requantize=True, force=True)
    assert result.check is not None and result.check.passed
    assert file.read_bytes() == other.read_bytes()


def test_bytes_do_not_depend_on_threads(random_model: MakeDirectory, tmp_path: Path) -> None:
    directory = random_model("llama")
    for threads in (1, 3):
        Quantization(directory, tmp_path / f"{threads}.gguf", "w4", threads=threads, check=False).run()
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


@pytest.mark.parametrize("name", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_that_is_not_finite_is_named(
    random_model: MakeDirectory, tmp_path: Path, name: str, value: float
) -> None:
    directory = random_model("llama")
    weights = random_weights(config_of("llama"))
    weights[name].reshape(-1)[70 % weights[name].size] = value
    write_weights(directory, weights, "F32")
    quantization = Quantization(directory, tmp_path / "out.gguf", "w4", check=False)
    with pytest.raises(ValueError, match=rf"tensor '{name.removeprefix('model.')}', rows 0 to \d+: .* not finite"):
        quantization.run()
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_places_that_cannot_be_written_are_refused_at_once(random_model: MakeDirectory, tmp_path: Path) -> None:
    directory = random_model("llama")
    out = tmp_path / "out.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"out.gguf: exists; --force replaces it"):
        Quantization(directory, out, "w4")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        Quantization(directory, tmp_path, "w4")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Quantization(directory, tmp_path / "none" / "out.gguf", "w4")
    assert out.read_bytes() == b"mine"
    _quantize(directory, out, force=True, check=False)
    assert out.read_bytes()[:4] == b"GGUF"


def test_a_disk_that_fills_up_leaves_nothing(
    random_model: MakeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantization = Quantization(random_model("llama"), tmp_path / "out.gguf", "w4", check=False)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gguf_writer, "_write_tensor", full)
    with pytest.raises(OSError, match="No space left"):
        quantization.run()
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_a_disk_without_room_is_refused_at_once(
    random_model: MakeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_writer.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match="MB free"):
        Quantization(random_model("llama"), tmp_path / "out.gguf", "w4")


def test_a_check_without_memory_is_refused_at_once(
    random_model: MakeDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = type("Facts", (), {"free": 200_000})
    monkeypatch.setattr("octavo.quantize.check.memory_facts", lambda: facts)
    with pytest.raises(ValueError, match=r"the check needs about .* are free; leave it out with --no-check"):
        Quantization(random_model("llama"), tmp_path / "out.gguf", "w4")
    assert _quantize(random_model("llama"), tmp_path / "out.gguf", check=False).check is None
