from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.loaders.dequantize import BLOCK_FORMATS, dequantize_blocks
from octavo.loaders.tensor_source import TensorSource, byte_size

GOLDEN = np.load(Path(__file__).parent / "data" / "quantised_blocks.npz")
KINDS = sorted(name.removesuffix("_raw") for name in GOLDEN.files if name.endswith("_raw"))


@pytest.mark.parametrize("kind", KINDS)
def test_values_equal_the_reference_bit_for_bit(kind: str) -> None:
    values = dequantize_blocks(kind, GOLDEN[f"{kind}_raw"])
    assert values.dtype == np.float32
    assert values.tobytes() == GOLDEN[f"{kind}_values"].tobytes()


def test_every_kind_is_covered_by_golden_values_or_is_a_numpy_type() -> None:
    assert set(BLOCK_FORMATS) == {*KINDS, "F32", "F16"}


@pytest.mark.parametrize(("kind", "dtype"), [("F32", "<f4"), ("F16", "<f2")])
def test_plain_floats_pass_through(kind: str, dtype: str) -> None:
    values = np.array([1.5, -0.25, 65504.0, 0.0], dtype=dtype)
    assert dequantize_blocks(kind, values.view(np.uint8)).tolist() == values.tolist()


@pytest.mark.parametrize("kind", sorted(BLOCK_FORMATS))
def test_any_bytes_give_values_without_a_warning(kind: str) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 50 * BLOCK_FORMATS[kind][1], dtype=np.uint8)
    assert len(dequantize_blocks(kind, raw)) == 50 * BLOCK_FORMATS[kind][0]


def _matrix(kind: str, shape: tuple[int, int], **fields: object) -> TensorSource:
    raw = np.resize(GOLDEN[f"{kind}_raw"], byte_size(kind, shape))
    return TensorSource("w", shape, kind, raw, **fields)  # type: ignore[arg-type]


def test_rows_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _matrix("Q4_K", (7, 512))
    whole = source.dequantize()
    monkeypatch.setattr("octavo.loaders.tensor_source.VALUES_PER_CHUNK", 1024)
    assert np.array_equal(source.dequantize(), whole)
    assert np.array_equal(source.dequantize_rows(3, 6), whole[3:6])
    assert source.dequantize_rows(3, 3).shape == (0, 512)


def test_row_order_and_offset_are_applied() -> None:
    order = np.array([2, 0, 1], dtype=np.int32)
    plain = _matrix("Q8_0", (3, 64)).dequantize()
    ordered = _matrix("Q8_0", (3, 64), row_order=order, offset=1.0).dequantize()
    assert np.array_equal(ordered, plain[order] + np.float32(1))
    bias = TensorSource("b", (3,), "F32", np.array([5, 6, 7], "<f4").view(np.uint8), order)
    assert bias.dequantize().tolist() == [7, 5, 6]


def test_rows_outside_are_refused() -> None:
    with pytest.raises(IndexError, match="w: rows 2 to 4 are not within its 3 rows"):
        _matrix("Q8_0", (3, 64)).dequantize_rows(2, 4)
