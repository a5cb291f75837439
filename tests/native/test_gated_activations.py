"""The native gated activations: how near they are to the function, and that the place of a value does not matter."""

import math

import numpy as np
import pytest
from support.machine import INSTRUCTION_SETS

from octavo import _native

TEAM = _native.ThreadTeam(1)
LIMITS = {"silu": 80.0, "gelu_tanh": 5.0}
"""Of gates: beyond them results are too small for a normal float32, or of no consequence"""


def weight(values):
    rows, columns = values.shape
    data = np.ascontiguousarray(values, np.float32).view(np.uint8).reshape(-1)
    return _native.PackedWeight.pack("f32", "F32", data, rows, columns, TEAM, None, None, None)


def gated(activation, gate, up, isa):
    """activation(gate) * up [n], by a program that embeds token 0 and whose head is the identity."""
    n = len(gate)
    phases = _native.make_phase_list([2 * n, n, n], [], num_groups=1, places_per_block=1, vocab_size=n)
    phases.add_embed((0, 0, 2 * n, False), weight(np.tile(np.concatenate((gate, up)), (n, 1))), 1.0)
    phases.add_gated_activation((1, 0, n, False), (0, 0, n, False), (0, n, n, False), activation)
    phases.add_write_kv((0, 0, 1, False), (0, 0, 1, False), 0, 0, 1, 1)  # a runner has a KV cache
    phases.add_select_rows((2, 0, n, True), (1, 0, n, False))
    phases.add_logits((2, 0, n, True), weight(np.eye(n)))
    runner = _native.Runner(phases, isa, "float32", TEAM)
    runner.reserve_kv(1, 8)
    zero, one = np.zeros(1, np.int32), np.ones(1, np.int32)
    table, no_copies = [np.zeros((1, 1), np.int32)], np.zeros((0, 2), np.int32)
    return np.array(runner.execute(zero, zero, np.array([0, 1], np.int32), one, table, zero, no_copies))[0]


def exact(activation, x):
    x = x.astype(np.float64)
    if activation == "silu":
        return x / (1 + np.exp(-x))
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("activation,ulps", [("silu", 3), ("gelu_tanh", 30)])
def test_results_are_near_the_function(activation, ulps, isa):
    """gelu_tanh's exponent is a float32 itself, whose last bit is worth more the larger it is."""
    gate = np.linspace(-LIMITS[activation], LIMITS[activation], 1600, dtype=np.float32)
    result = gated(activation, gate, np.ones_like(gate), isa)
    expected = exact(activation, gate)
    assert (np.abs(result - expected) <= ulps * np.spacing(np.abs(expected).astype(np.float32))).all()


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("activation", LIMITS)
def test_a_value_has_the_same_bits_in_every_place(activation, isa):
    gate, up = np.random.default_rng(0).standard_normal((2, 64), dtype=np.float32) * 3
    whole = gated(activation, gate, up, isa)
    for first, end in ((0, 1), (0, 31), (1, 64), (17, 40)):
        assert np.array_equal(gated(activation, gate[first:end], up[first:end], isa), whole[first:end])


@pytest.mark.parametrize("isa", INSTRUCTION_SETS[1:])
@pytest.mark.parametrize("activation", LIMITS)
def test_every_instruction_set_gives_the_same_bits(activation, isa):
    gate, up = np.random.default_rng(1).standard_normal((2, 4000), dtype=np.float32) * np.float32([[20], [1]])
    assert np.array_equal(gated(activation, gate, up, isa), gated(activation, gate, up, INSTRUCTION_SETS[0]))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("activation", LIMITS)
def test_extremes(activation, isa):
    """A large gate is itself, and what closes lets next to nothing through."""
    gate = np.array([3e38, 100, 0, -200, -1e6], np.float32)
    result = gated(activation, gate, np.ones_like(gate), isa)
    assert np.array_equal(result[:3], gate[:3])
    assert (np.abs(result[3:]) < 1e-30).all()
