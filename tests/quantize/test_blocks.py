"""Block codes: within half a step of the values, never worse than the plain grid, and what the reader makes of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from octavo.loaders.dequantize import dequantize_blocks
from octavo.quantize.blocks import LARGEST, quantize_blocks

Floats = npt.NDArray[np.float32]
FINITE = st.floats(-1e4, 1e4, width=32)
BLOCKS = arrays(np.float32, st.integers(1, 4).map(lambda n: 32 * n), elements=FINITE)
SMALLEST_HALF = 2.0**-24


def _back(kind: str, values: Floats) -> Floats:
    return dequantize_blocks(kind, quantize_blocks(kind, values))


def _plain_affine(values: Floats) -> Floats:
    """The grid that reaches the extremes of each block, in float16, as Q4_1 is usually made."""
    groups = values.reshape(-1, 32)
    low = groups.min(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
    step = ((groups.max(axis=1, keepdims=True) - low) / 15).astype(np.float16).astype(np.float32)
    codes = np.round((groups - low) / np.where(step == 0, np.inf, step)).clip(0, 15)
    return (codes * step + low).reshape(-1).astype(np.float32)


@given(BLOCKS)
@settings(max_examples=50, deadline=None)
def test_q8_0_is_within_half_a_step(values: Floats) -> None:
    groups = values.reshape(-1, 32)
    step = np.abs(groups).max(axis=1, keepdims=True) / 127
    # The step is rounded to float16, up to its next neighbour.
    bound = step * (1 + 2.0**-9) / 2 + SMALLEST_HALF
    assert (np.abs(_back("Q8_0", values).reshape(-1, 32) - groups) <= bound).all()


@given(BLOCKS)
@settings(max_examples=50, deadline=None)
def test_q4_1_is_no_worse_than_the_plain_grid(values: Floats) -> None:
    groups = values.reshape(-1, 32).astype(np.float64)

    def distance(found: Floats) -> npt.NDArray[np.float64]:
        return np.linalg.norm(found.reshape(-1, 32) - groups, axis=1)

    span = groups.max(axis=1) - groups.min(axis=1)
    # What rounding the step and the minimum to float16 can add to each value.
    rounding = (span + np.abs(groups).max(axis=1)) * 2.0**-10 + 16 * SMALLEST_HALF
    assert (distance(_back("Q4_1", values)) <= distance(_plain_affine(values)) + 32**0.5 * rounding).all()


def test_q4_1_has_a_fifth_less_error_than_the_plain_grid_on_normal_weights() -> None:
    values = np.random.default_rng(0).normal(0, 0.02, 1 << 16).astype(np.float32)
    ours = ((_back("Q4_1", values) - values) ** 2).mean()
    assert ours < 0.82 * ((_plain_affine(values) - values) ** 2).mean()


def test_important_columns_are_kept_more_exactly() -> None:
    values = np.random.default_rng(3).standard_normal((200, 64)).astype(np.float32)
    importance = np.full(64, 0.1, np.float32)
    importance[[3, 40]] = 30.0

    def errors(found: npt.NDArray[np.uint8]) -> Floats:
        return ((dequantize_blocks("Q4_1", found).reshape(200, 64) - values) ** 2).mean(axis=0)

    alike, weighed = errors(quantize_blocks("Q4_1", values)), errors(quantize_blocks("Q4_1", values, importance))
    assert (weighed[[3, 40]] < alike[[3, 40]] / 4).all()
    assert (weighed * importance).sum() < (alike * importance).sum() / 2


def test_equal_importance_changes_nothing() -> None:
    values = np.random.default_rng(4).standard_normal((70, 96)).astype(np.float32)
    same = quantize_blocks("Q4_1", values, np.ones(96, np.float32))
    np.testing.assert_array_equal(same, quantize_blocks("Q4_1", values))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_blocks_of_one_value_keep_it(kind: str) -> None:
    for value in (0.0, 1.0, -0.5, 1e-3, LARGEST):
        values = np.full(32, value, np.float32)
        np.testing.assert_allclose(_back(kind, values), values, rtol=2.0**-8)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_what_was_on_a_grid_stays_there(kind: str) -> None:
    generator = np.random.default_rng(1)
    if kind == "Q8_0":
        codes = generator.integers(-127, 128, (50, 32))
        codes[:, 0] = 127
        values = (codes * 0.0078125).astype(np.float32)
    else:
        codes = generator.integers(0, 16, (50, 32))
        codes[:, :2] = 0, 15
        values = (codes * 0.0078125 - 0.0625).astype(np.float32)
    np.testing.assert_array_equal(_back(kind, values.reshape(-1)), values.reshape(-1))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_bytes_do_not_depend_on_the_cut(kind: str) -> None:
    generator = np.random.default_rng(2)
    values = generator.standard_normal((1700, 96)).astype(np.float32)
    importance = generator.uniform(0.1, 2, 96).astype(np.float32)
    whole = quantize_blocks(kind, values, importance)
    parts = [quantize_blocks(kind, part, importance) for part in np.split(values, [1, 683, 684])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize(("value", "problem"), [(np.nan, "not finite"), (np.inf, "not finite"), (7e4, "above 65504")])
def test_what_does_not_fit_is_refused(kind: str, value: float, problem: str) -> None:
    values = np.zeros(64, np.float32)
    values[40] = value
    with pytest.raises(ValueError, match=problem):
        quantize_blocks(kind, values)


def test_no_values_are_no_bytes() -> None:
    assert quantize_blocks("Q8_0", np.empty(0, np.float32)).nbytes == 0
