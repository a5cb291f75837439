"""Case F59 for safetensors files and directories."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loader_files import f32, hf_config, hf_tensors, raw_safetensors, safetensors_bytes, write_directory

from octavo.loaders.checkpoint import check_weights, open_checkpoint
from octavo.loaders.safetensors import open_directory
from octavo.loaders.safetensors_file import read_safetensors
from octavo.loaders.tensor_source import CheckpointError


def _refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError) as caught:
        read_safetensors(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def test_tensors_are_read_only_views(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    half = np.array([1.5, 2.5], "<f2").tobytes()
    tensors = {"a": f32((2, 3)), "b": ("BF16", (2,), b"\x80\x3f\x00\x40"), "c": ("F16", (2,), half)}
    path.write_bytes(safetensors_bytes(tensors, format="pt"))
    file = read_safetensors(path)
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in file.tensors.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("BF16", (2,)),
        "c": ("F16", (2,)),
    }
    assert file.tensors["a"].raw.view("<f4").tolist() == [0, 1, 2, 3, 4, 5]
    assert not file.tensors["a"].raw.flags.writeable


def _entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


ENTRIES: dict[str, tuple[Any, str]] = {
    "no object": ([1], "'t': its entry must be an object"),
    "a missing field": ({"dtype": "F32", "shape": [2]}, "'t': its entry must be an object"),
    "an unknown field": (_entry(extra=1), "'t': its entry must be an object"),
    "an unknown dtype": (_entry(dtype="F12"), "'t': has the unknown dtype 'F12'"),
    "a dtype of a wrong type": (_entry(dtype=[1]), "'t': has the unknown dtype"),
    "a negative dimension": (_entry(shape=[-2]), "'t': has the shape [-2]"),
    "a zero dimension": (_entry(shape=[0], offsets=[0, 0]), "'t': has the shape [0], no dimension may be 0"),
    "a dimension that is no integer": (_entry(shape=[2.0]), "'t': has the shape [2.0]"),
    "a dimension that is a bool": (_entry(shape=[True, 2]), "'t': has the shape"),
    "2^60 values": (_entry(shape=[1 << 60]), f"needs {1 << 62}"),
    "an overflowing product": (_entry(shape=[1 << 62, 1 << 62]), "'t': data_offsets [0, 8] are 8 bytes"),
    "a shape that is no list": (_entry(shape=2), "'t': has the shape 2"),
    "a hundred dimensions": (_entry(shape=[1] * 100), "a list of at most 8 sizes"),
    "offsets shorter than the shape": (_entry(offsets=[0, 4]), "are 4 bytes, but F32 [2] needs 8"),
    "offsets that run backwards": (_entry(offsets=[8, 0]), "are -8 bytes"),
    "negative offsets": (_entry(offsets=[-8, 0]), "'t': has the data_offsets [-8, 0]"),
    "one offset": (_entry(offsets=[8]), "'t': has the data_offsets [8]"),
    "offsets beyond the file": (_entry(offsets=[0, 800], shape=[200]), "'t': ends at byte 800 of the data"),
    "a gap at the start": (_entry(offsets=[4, 12]), "'t': begins at byte 4 of the data, leaves a gap"),
    "less than the data": (_entry(offsets=[0, 4], shape=[1]), "the tensors end at byte 4 of the data"),
}


@pytest.mark.parametrize("case", sorted(ENTRIES))
def test_malformed_entries_are_refused(tmp_path: Path, case: str) -> None:
    entry, message = ENTRIES[case]
    assert message in _refused(tmp_path, raw_safetensors(json.dumps({"t": entry}).encode(), bytes(8)))


def test_tensors_over_each_other_are_refused(tmp_path: Path) -> None:
    header = {"a": _entry(), "b": _entry(offsets=[4, 12])}
    assert "'b': begins at byte 4 of the data, overlaps 'a'" in _refused(
        tmp_path, raw_safetensors(json.dumps(header).encode(), bytes(12))
    )


HEADERS = {
    "no JSON": (b"{", "is not JSON"),
    "a list": (b"[]", "holds a JSON list, it must be an object"),
    "a number": (b"7", "holds a JSON int"),
    "no text": (b"\xff\xfe", "is not JSON"),
    "deep nesting": (b'{"a":' + b"[" * 100_000, "header:"),
    "an integer of absurd length": (b'{"a":' + b"9" * 10_000 + b"}", "is not JSON"),
    "a duplicate tensor": (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
    "nothing": (b"", "is not JSON"),
}


@pytest.mark.parametrize("case", sorted(HEADERS))
def test_malformed_headers_are_refused(tmp_path: Path, case: str) -> None:
    header, message = HEADERS[case]
    assert message in _refused(tmp_path, raw_safetensors(header, b""))


@pytest.mark.parametrize("length", [10**12, (1 << 64) - 1, 1 << 63])
def test_huge_header_lengths_are_refused(tmp_path: Path, length: int) -> None:
    message = _refused(tmp_path, struct.pack("<Q", length) + b"{}")
    assert f"a length of {length} bytes, the limit is" in message


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    data = safetensors_bytes({"a": f32((2, 3)), "b": f32((2,))})
    for size in range(len(data)):
        _refused(tmp_path, data[:size])
    assert "the tensors end at byte" in _refused(tmp_path, data + b"\0")


SEED = safetensors_bytes({"a": f32((2, 3)), "b": f32((2,))})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.binary(min_size=1, max_size=3)), min_size=1, max_size=3))
def test_mutated_files_load_or_are_refused(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(SEED)
    for at, new in changes:
        data[at : at + len(new)] = new
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    try:
        read_safetensors(path)
    except CheckpointError as error:
        assert str(path) in str(error)


def _shard(folder: Path) -> dict[str, str]:
    """Splits the tiny llama over two files, and returns the weight map."""
    tensors = list(hf_tensors().items())
    (folder / "model.safetensors").unlink()
    weight_map = {}
    for number, part in enumerate((tensors[:9], tensors[9:]), 1):
        name = f"model-0000{number}-of-00002.safetensors"
        (folder / name).write_bytes(safetensors_bytes(dict(part)))
        weight_map |= dict.fromkeys(dict(part), name)
    return weight_map


def _write_index(folder: Path, weight_map: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_shards_give_the_same_as_one_file(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "hf", hf_config())
    single = open_directory(folder).tensors
    _write_index(folder, _shard(folder))
    sharded = open_directory(folder).tensors
    assert sharded.keys() == single.keys()
    assert all(np.array_equal(sharded[name].dequantize(), single[name].dequantize()) for name in single)


def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "hf", hf_config())
    weight_map = _shard(folder)
    first, second = sorted(set(weight_map.values()))
    name = "model.norm.weight"
    cases: list[tuple[Any, str]] = [
        ({key: value for key, value in weight_map.items() if key != name}, f"tensor '{name}': .* says None"),
        (weight_map | {name: second}, f"tensor '{name}': .* says {second}"),
        (weight_map | {"extra": first}, f"{first}: tensor 'extra': is missing"),
        (weight_map | {"extra": "other.safetensors"}, r"other\.safetensors: does not exist"),
        (weight_map | {"extra": "../other.safetensors"}, "is no safetensors file name"),
        (weight_map | {"extra": "/etc/passwd"}, "is no safetensors file name"),
        (weight_map | {"extra": 7}, "is no safetensors file name"),
        ([], "weight_map must be an object"),
    ]
    for changed, message in cases:
        _write_index(folder, changed)
        with pytest.raises(CheckpointError, match=message):
            open_directory(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = write_directory(tmp_path / "hf", hf_config())
    weight_map = _shard(folder)
    (folder / "model-00002-of-00002.safetensors").write_bytes(safetensors_bytes(hf_tensors()))
    _write_index(folder, weight_map)
    with pytest.raises(CheckpointError, match=r"model-00002.*is in model-00001"):
        open_directory(folder)


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: does not exist"):
        open_directory(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(hf_config()))
    with pytest.raises(CheckpointError, match=r"has neither model\.safetensors nor"):
        open_directory(tmp_path)


def test_weights_of_other_types_are_refused(tmp_path: Path) -> None:
    tensors = hf_tensors() | {"model.norm.weight": ("F8_E4M3", (8,), bytes(8))}
    folder = write_directory(tmp_path / "hf", hf_config(), tensors)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor 'model\.norm\.weight': is F8_E4M3"):
        open_directory(folder)


@pytest.mark.parametrize(("says", "tied"), [(True, True), (None, True), (False, False)])
def test_a_head_that_is_absent_is_tied_unless_the_configuration_denies_it(
    tmp_path: Path, says: bool | None, tied: bool
) -> None:
    folder = write_directory(tmp_path / "hf", hf_config(tie_word_embeddings=says))
    assert open_directory(folder).config.tie_word_embeddings is tied


@pytest.mark.parametrize("says", [None, False])
def test_a_head_of_its_own_is_used(tmp_path: Path, says: bool | None) -> None:
    tensors = hf_tensors() | {"lm_head.weight": f32((6, 8), 5.0)}
    opened = open_directory(write_directory(tmp_path / "hf", hf_config(tie_word_embeddings=says), tensors))
    assert not opened.config.tie_word_embeddings
    assert "lm_head.weight" in opened.tensors


def test_a_tied_head_may_repeat_the_embedding_but_not_differ(tmp_path: Path) -> None:
    same = hf_tensors() | {"lm_head.weight": f32((6, 8))}
    opened = open_directory(write_directory(tmp_path / "hf", hf_config(), same))
    assert opened.config.tie_word_embeddings and "lm_head.weight" not in opened.tensors
    other = hf_tensors() | {"lm_head.weight": f32((6, 8), 5.0)}
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight': differs from the embedding"):
        open_directory(write_directory(tmp_path / "hf", hf_config(), other))


def test_gemma_norms_get_one_added(tmp_path: Path) -> None:
    config = hf_config(architectures=["Gemma3ForCausalLM"], head_dim=4, query_pre_attn_scalar=4)
    tensors = hf_tensors() | {"model.layers.0.self_attn.q_norm.weight": f32((4,))}
    opened = open_checkpoint(write_directory(tmp_path / "hf", config, tensors)).tensors
    assert {name for name, source in opened.items() if source.offset} == {
        name for name in opened if name.endswith("norm.weight")
    }
    assert opened["layers.0.self_attn.q_norm.weight"].dequantize().tolist() == [1, 2, 3, 4]


def test_the_text_part_of_a_model_with_images_loads_without_its_encoder(tmp_path: Path) -> None:
    text = hf_config(head_dim=4)
    del text["architectures"]
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
    }
    tensors = {f"language_model.{name}": value for name, value in hf_tensors().items()}
    opened = open_checkpoint(write_directory(tmp_path / "hf", config, tensors))
    check_weights({name: source.shape for name, source in opened.tensors.items()}, opened)
    assert "layers.1.mlp.up_proj.weight" in opened.tensors
    with pytest.raises(CheckpointError, match="belongs to an image encoder"):
        open_checkpoint(write_directory(tmp_path / "hf", config, tensors | {"vision_tower.x": f32((2,))}))
