"""Rotary tables equal those of transformers (data made by scripts/make_model_goldens.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

from octavo.program.rope import cos_sin, make_rope

TABLES = json.loads((Path(__file__).parents[1] / "models" / "data" / "rope.json").read_text())
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def rope_of(table):
    return make_rope(
        table["head_dim"], table["theta"], table["scaling"], table["max_position_embeddings"], table["length"]
    )


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t['scaling']['rope_type']}-{t['head_dim']}")
def test_table_equals_transformers(table):
    rope = rope_of(table)
    # Two float32 steps: powers are rounded otherwise here and there.
    np.testing.assert_allclose(rope.inv_freq, table["inv_freq"], rtol=2.5e-7)
    assert rope.attention_scaling == pytest.approx(table["attention_scaling"], rel=1e-12)
    assert rope.rotary_dim == table["head_dim"]
    expected = table["cos_sin"]
    cos, sin = cos_sin(rope, np.array(expected["positions"], np.int32))
    np.testing.assert_allclose(cos, expected["cos"], atol=1e-3)
    np.testing.assert_allclose(sin, expected["sin"], atol=1e-3)
    np.testing.assert_allclose(cos[:3], np.array(expected["cos"])[:3], atol=2e-5)


def test_no_scaling_is_plain_rope():
    assert make_rope(16, 1e4, None, 64) == make_rope(16, 1e4, {"rope_type": "default"}, 64)


def test_dynamic_is_plain_up_to_the_original_length():
    dynamic = {"rope_type": "dynamic", "factor": 4.0}
    assert make_rope(16, 1e4, dynamic, 64) == make_rope(16, 1e4, None, 64)
    assert make_rope(16, 1e4, dynamic, 64, length=64) == make_rope(16, 1e4, None, 64)
    assert make_rope(16, 1e4, dynamic, 64, length=65) != make_rope(16, 1e4, None, 64)


def test_llama3_factors_divide_the_plain_frequencies():
    factors = np.linspace(1, 8, 8).tolist()
    rope = make_rope(16, 1e4, {"rope_type": "llama3_factors", "factors": factors}, 64)
    np.testing.assert_allclose(np.array(rope.inv_freq) * factors, make_rope(16, 1e4, None, 64).inv_freq, rtol=1e-6)


def test_unknown_type_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'longrope' is unknown; known are default, dynamic, linear, llama3"):
        make_rope(16, 1e4, {"rope_type": "longrope"}, 64)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "linear"}, "rope_scaling.factor is None"),
        ({"rope_type": "linear", "factor": "4"}, "rope_scaling.factor is '4'"),
        ({"rope_type": "linear", "factor": 0.0}, "rope_scaling.factor is 0.0, must be above 0"),
        ({"rope_type": "linear", "factor": float("nan")}, "rope_scaling.factor is nan"),
        (LLAMA3 | {"low_freq_factor": None}, "rope_scaling.low_freq_factor is None"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "low_freq_factor 4.0 must be below high_freq_factor 4.0"),
        ({"rope_type": "llama3_factors", "factors": [1.0]}, r"rope_scaling.factors has shape \[1\]; needs 8"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
    ],
)
def test_unusable_scaling_names_the_field(scaling, message):
    with pytest.raises(ValueError, match=message):
        make_rope(16, 1e4, scaling, 64)


def test_odd_head_dim_and_bad_base_are_refused():
    with pytest.raises(ValueError, match="head_dim is 15"):
        make_rope(15, 1e4, None, 64)
    with pytest.raises(ValueError, match="rope_theta is 0"):
        make_rope(16, 0, None, 64)
