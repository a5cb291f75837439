"""Kernels over the machine's limits: shapes, rows and what they add up to. No time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_model import make_small_model
from support.machine import INSTRUCTION_SETS

from octavo.bench.attention_timing import AttentionCase, TimedAttention
from octavo.bench.kernels import GROUPS, KernelOptions, measure_kernels
from octavo.bench.machine_limits import READ_SIZES, MachineLimits
from octavo.bench.model_shape import ModelShape, RowShape, model_shape
from octavo.bench.random_weights import FORMATS, random_weights
from octavo.cli import bench_kernels
from octavo.loaders.checkpoint import open_checkpoint
from octavo.models.registry import build_program

if not INSTRUCTION_SETS:
    pytest.skip("the native library does not run here", allow_module_level=True)

from octavo import _native

TINY = ModelShape(
    linears=((48, 32), (32, 48), (48, 32), (32, 48)),
    head=(96, 32),
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    rows=(RowShape("rms_norm", 32, 1), RowShape("rope", 64, 4), RowShape("silu_mul", 48, 1)),
)
OPTIONS = KernelOptions(
    rows=(1, 3, 65),
    formats=("w4", "bf16"),
    block_size=32,
    repeats=1,
    attention=(AttentionCase(2, 40), AttentionCase(1, 40, 20)),
    paging=(AttentionCase(2, 100),),
)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading half a gigabyte takes a while."""
    monkeypatch.setattr("octavo.bench.machine_limits.READ_SIZES", (2**20,))


def test_the_shapes_are_the_programs(tmp_path: Path) -> None:
    config = open_checkpoint(make_small_model(tmp_path / "model")).config
    shape = model_shape(build_program(config, 64))
    assert (shape.layers, shape.heads, shape.kv_heads, shape.head_dim) == (2, 4, 2, 8)
    assert shape.head == (96, 32)
    assert shape.linears[:7] == ((32, 32), (16, 32), (16, 32), (32, 32), (48, 32), (48, 32), (32, 48))
    assert len(shape.linears) == 14
    assert RowShape("silu_mul", 48, 1) in shape.rows and RowShape("rope", 16, 2) in shape.rows
    assert len(set(shape.rows)) == len(shape.rows)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_every_kernel_has_its_rows(isa: str) -> None:
    report = measure_kernels(TINY, isa, 2, OPTIONS)
    kernels = {(row["kernel"], row["rows"]) for row in report["rows"]}
    assert {("linear w4", 1), ("linear bf16", 65), ("head w4", 3), ("attention decode", 2)} <= kernels
    assert {("attention prefill", 20), ("rms_norm 32", 65), ("silu_mul 48", 1), ("sampling greedy", 3)} <= kernels
    assert ("head w4", 65) not in kernels and ("sampling greedy", 65) not in kernels
    for row in report["rows"]:
        assert row["time_us"] > 0 and row["gb_per_s"] > 0 and row["bandwidth_share"] > 0
        assert (row["top_per_s"] is None) == (row["peak_share"] is None)
        assert row["bound_by"] in ("memory", "products")
    assert report["limits"]["isa"] == isa and report["limits"]["threads"] == 2
    assert {"int8", "float32"} <= {each["kind"] for each in report["limits"]["products"]}


def test_bytes_and_operations_are_those_of_the_work() -> None:
    (row,) = measure_kernels(TINY, "avx2", 1, KernelOptions(rows=(3,), formats=("f32",), groups=("linear",)))["rows"]
    values = sum(n * k for n, k in TINY.linears)
    seconds = row["time_us"] / 1e6
    assert row["gb_per_s"] * seconds * 1e9 == pytest.approx(4 * values, rel=0.7)  # padded to whole panels
    assert row["top_per_s"] * seconds * 1e12 == pytest.approx(2 * 3 * values, rel=1e-6)


def test_linears_by_their_shape() -> None:
    options = KernelOptions(rows=(1,), formats=("w8",), groups=("linear",), by_shape=True, repeats=1)
    names = [row["kernel"] for row in measure_kernels(TINY, "avx2", 1, options)["rows"]]
    assert names == ["linear w8 32x48", "linear w8 48x32"]


def test_int8_activations_are_for_integer_formats() -> None:
    options = KernelOptions(
        rows=(2,), formats=("w4", "bf16"), groups=("linear", "rows"), activation_dtype="int8", repeats=1
    )
    shape = replace(TINY, rows=(RowShape("prepare_integers", 32, 1),))
    names = [row["kernel"] for row in measure_kernels(shape, "avx2", 1, options)["rows"]]
    assert names == ["linear w4/int8", "linear bf16", "prepare_int8 32"]


def test_paging_is_compared_with_a_block_that_holds_the_context() -> None:
    (row,) = measure_kernels(TINY, "avx2", 2, OPTIONS)["paging"]
    assert (row["sequences"], row["context"], row["block_size"]) == (2, 100, 32)
    assert row["shuffled_ratio"] == pytest.approx(row["shuffled_us"] / row["contiguous_us"])
    assert row["in_order_ratio"] == pytest.approx(row["in_order_us"] / row["contiguous_us"])


def test_attention_counts_its_products_and_its_bytes() -> None:
    team = _native.ThreadTeam(1)
    timed = TimedAttention(TINY, AttentionCase(2, 64), 32, "shuffled", "bfloat16", "avx2", team)
    assert timed.operations == 2 * 64 * 4 * TINY.heads * TINY.head_dim * TINY.layers
    padded_head = 32
    assert timed.kv_bytes == 2 * 64 * TINY.kv_heads * padded_head * 2 * 2 * TINY.layers
    prefill = TimedAttention(TINY, AttentionCase(1, 4, 3), 32, "one block", "float32", "avx2", team)
    assert prefill.operations == (2 + 3 + 4) * 4 * TINY.heads * TINY.head_dim * TINY.layers
    assert prefill.seconds(1) > 0


@pytest.mark.parametrize("fmt", FORMATS)
def test_random_weights_of_every_format(fmt: str) -> None:
    one, two = random_weights([(17, 40), (17, 40)], fmt, _native.ThreadTeam(1))
    assert one.format == fmt and one.n == 17 and one.k >= 40
    values = one.dequantize()
    assert (values == two.dequantize()).all() and abs(values).max() < 100 and values.std() > 0


def test_what_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="format='w5'"):
        measure_kernels(TINY, "avx2", 1, KernelOptions(formats=("w5",), groups=("linear",)))
    with pytest.raises(ValueError, match="dtype is 'int3'"):
        measure_kernels(TINY, "avx2", 1, KernelOptions(kv_dtype="int3", groups=("attention",)))
    with pytest.raises(ValueError, match="kind is 'int3'"):
        _native.time_products("int3", "avx2", _native.ThreadTeam(1))
    with pytest.raises(ValueError, match="'sine'"):
        _native.time_row_operation("sine", 1, 8, 1, "avx2", _native.ThreadTeam(1))
    with pytest.raises(ValueError, match="bytes and repeats"):
        _native.time_reads(0, "avx2", _native.ThreadTeam(1))


def test_limits_are_measured_once() -> None:
    limits = MachineLimits("avx2", _native.ThreadTeam(1), repeats=1)
    assert limits.read_speed(2**20) == limits.read_speed(2**20 - 1) > 0
    assert limits.product_speed("bf16") == limits.product_speed("float32") > 0
    assert max(READ_SIZES) >= 2**28


def test_the_command_knows_all_groups() -> None:
    assert bench_kernels.GROUPS == GROUPS


def test_the_command(tmp_path: Path, octavo: Any) -> None:
    model = str(make_small_model(tmp_path / "model"))
    arguments = ("bench", "kernels", model, "--isa", "avx2", "--threads", "1", "--rows", "1", "--formats", "w4")
    only = [word for group in GROUPS if group not in ("attention", "paging") for word in ("--only", group)]
    result = octavo(*arguments, *only, "--repeat", "1", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["benchmark"] == "kernels" and report["model"] == model and report["paging"] == []
    text = octavo(*arguments, "--only", "linear", "--repeat", "1").stdout
    assert text.startswith("avx2, 1 threads") and "linear w4" in text
    assert "format='w9'" in octavo(*arguments, "--formats", "w9", "--only", "linear").stderr
