"""The linear kernels against integer emulation, float64, and each other."""

from __future__ import annotations

import numpy as np
import pytest

from octavo import _native

ISAS = [isa for isa in ("avx2", "avx512_vnni", "avx512_bf16", "amx") if _native.isa_supported(isa)]
INTEGER_FORMATS = {
    "w4": "Q4_1",
    "w4symmetric": "Q4_0",
    "w6": "Q5_0",
    "w6g16": "Q6_K",
    "w6affine": "Q5_1",
    "w6affine_g16": "Q2_K",
    "w8": "Q8_0",
}
BLOCKS = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q6_K": (256, 210),
    "Q2_K": (256, 84),
    "Q8_0": (32, 34),
}
# Where the half-precision scales of a block lie.
HALVES = {"Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q6_K": (208,), "Q2_K": (80, 82)}


@pytest.fixture(scope="module")
def team() -> _native.ThreadTeam:
    return _native.ThreadTeam(2)


def random_blocks(kind: str, n: int, k: int, rng: np.random.Generator) -> np.ndarray:
    """Random bytes of n rows of k values, with sensible scales."""
    values, size = BLOCKS[kind]
    raw = rng.integers(0, 256, (n * k // values, size), dtype=np.uint8)
    for at in HALVES[kind]:
        scales = (rng.uniform(0.2, 1.0, len(raw)) * 0.01).astype(np.float16)
        raw[:, at : at + 2] = scales[:, None].view(np.uint8)
    return raw


def emulate(w_int: np.ndarray, scales: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The definition: how many times an exact integer sum holds 256, times what that is worth, in float32."""
    largest = np.abs(x).max(axis=1)
    inverse = np.zeros_like(largest)
    s = np.zeros_like(largest)
    used = largest >= np.float32(1e-30)
    inverse[used] = np.float32(8064) / largest[used]
    s[used] = largest[used] / np.float32(8064)
    a = np.rint(x * inverse[:, None])
    total = a.astype(np.float64) @ w_int.astype(np.float64).T  # integers below 2^53: exact in any order
    return np.floor(total / 256).astype(np.float32) * (s[:, None] * (scales * np.float32(256)).T)


def round_once(product: np.ndarray, addend: np.ndarray) -> np.ndarray:
    """product + addend in float32 as if no float64 lay between: float64 sums are first rounded to odd."""
    total = product + addend
    high = total - product
    error = (product - (total - high)) + (addend - high)
    even = (total.view(np.int64) & 1) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(total, toward), total).astype(np.float32)


def emulate_int8(w_int: np.ndarray, scales: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The definition of 8-bit activations: exact over 32 inputs, in float32 from one of these to the next."""
    rows, k = x.shape
    groups = np.pad(x, ((0, 0), (0, -k % 32))).reshape(rows, -1, 32)
    weights = np.pad(w_int, ((0, 0), (0, -k % 32))).reshape(len(w_int), -1, 32).astype(np.float64)
    largest = np.abs(groups).max(axis=2)
    used = largest >= np.float32(1e-30)
    inverse, s = np.zeros_like(largest), np.zeros_like(largest)
    inverse[used] = np.float32(127) / largest[used]
    s[used] = largest[used] / np.float32(127)
    codes = np.rint(groups * inverse[:, :, None]).astype(np.float64)
    total = np.zeros((rows, len(w_int)), dtype=np.float32)
    for g in range(groups.shape[1]):
        exact = (codes[:, g] @ weights[:, g].T).astype(np.float32)
        total = round_once(exact.astype(np.float64) * s[:, g : g + 1].astype(np.float64), total.astype(np.float64))
    return total * scales.T


def random_raw(fmt: str, n: int, k: int, rng: np.random.Generator) -> tuple[str, np.ndarray]:
    """The kind and the random bytes of a tensor that can be packed into the format."""
    kind = INTEGER_FORMATS.get(fmt, "F32")
    if kind == "F32":
        return kind, rng.standard_normal(n * k).astype(np.float32).view(np.uint8)
    return kind, random_blocks(kind, n, k, rng)


def pack(
    fmt: str, n: int, k: int, team: _native.ThreadTeam, rng: np.random.Generator, **kwargs: object
) -> _native.PackedWeight:
    kind, raw = random_raw(fmt, n, k, rng)
    return _native.PackedWeight.pack(fmt, kind, raw, n, k, team, **kwargs)


def pack_one_byte(fmt: str, byte: int, n: int, k: int, team: _native.ThreadTeam) -> _native.PackedWeight:
    """A weight whose blocks hold the same byte all over, but for scales of 1.5."""
    kind = INTEGER_FORMATS[fmt]
    values, size = BLOCKS[kind]
    raw = np.full((n * k // values, size), byte, dtype=np.uint8)
    for at in HALVES[kind]:
        raw[:, at : at + 2] = np.full((len(raw), 1), 1.5, dtype=np.float16).view(np.uint8)
    return _native.PackedWeight.pack(fmt, kind, raw, n, k, team)


def sizes(fmt: str) -> list[int]:
    step = BLOCKS[INTEGER_FORMATS[fmt]][0]
    return [k for k in (32, 64, 96, 256, 576, 640, 1536, 2048, 8192, 14336) if k % step == 0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", INTEGER_FORMATS)
def test_integer_formats_equal_the_definition_exactly(fmt: str, isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(1)
    for k in sizes(fmt):
        n = 37 if k > 600 else 83
        weight = pack(fmt, n, k, team, rng)
        w_int, scales = weight.integers()
        for rows in (1, 2, 3, 4, 5, 7, 9, 16, 17, 24, 25, 33, 70) if k < 700 else (1, 3, 6, 19, 49):
            x = rng.standard_normal((rows, k)).astype(np.float32)
            assert np.array_equal(weight.matmul(x, isa, team), emulate(w_int, scales, x)), (k, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", INTEGER_FORMATS)
def test_8_bit_activations_equal_their_definition_exactly(fmt: str, isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(11)
    for k in sizes(fmt):
        n = 37 if k > 600 else 83
        weight = pack(fmt, n, k, team, rng)
        w_int, scales = weight.integers()
        for rows in range(1, 71) if k == 256 else (1, 2, 7, 16, 35) if k < 3000 else (3, 17):
            x = rng.standard_normal((rows, k)).astype(np.float32) * rng.uniform(0.01, 9, k).astype(np.float32)
            result = weight.matmul(x, isa, team, int8_activations=True)
            assert np.array_equal(result, emulate_int8(w_int, scales, x)), (k, rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", INTEGER_FORMATS)
def test_largest_codes_and_8_bit_activations_do_not_overflow(fmt: str, isa: str, team: _native.ThreadTeam) -> None:
    k = 512
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        weight = pack_one_byte(fmt, byte, 17, k, team)
        w_int, scales = weight.integers()
        for signs in (1, -1, np.where(np.arange(k) % 2, 1, -1), np.where(np.arange(k) % 32 < 16, 1, -1)):
            x = (np.full((17, k), 3.0) * signs).astype(np.float32)
            result = weight.matmul(x, isa, team, int8_activations=True)
            assert np.array_equal(result, emulate_int8(w_int, scales, x)), byte


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", INTEGER_FORMATS)
@pytest.mark.parametrize(("k", "counts"), [(32768, (1, 2, 17)), (8192, (2, 33)), (2048, (25, 53))])
def test_largest_codes_and_activations_do_not_overflow(
    k: int, counts: tuple[int, ...], fmt: str, isa: str, team: _native.ThreadTeam
) -> None:
    # The largest integer is 8191; of 8128, both planes of 7 bits are as large as can be.
    both_planes = np.where(np.arange(k) == 0, 1, 8128 / 8191)
    each_other, each_pair = (1 - np.arange(k) // step % 2 * 2 for step in (1, 2))
    half = np.stack([both_planes, np.ones(k), both_planes * each_other, both_planes * each_pair])
    patterns = np.stack([half, -half], axis=1).reshape(-1, k)
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        weight = pack_one_byte(fmt, byte, 17, k, team)
        w_int, scales = weight.integers()
        for rows in counts:
            x = (3.0 * patterns[np.arange(rows) % len(patterns)]).astype(np.float32)
            assert np.array_equal(weight.matmul(x, isa, team), emulate(w_int, scales, x)), (byte, rows)


@pytest.mark.parametrize("fmt", ["w4", "w4symmetric", "w8"])
def test_the_longest_rows_are_exact_on_every_instruction_set(fmt: str, team: _native.ThreadTeam) -> None:
    k = 1 << 18
    weight = pack_one_byte(fmt, 0xFF if fmt == "w4" else 0x80, 2, k, team)
    w_int, scales = weight.integers()
    x = np.full((6, k), 1.0, dtype=np.float32)
    expected = emulate(w_int, scales, x)
    for isa in ISAS:
        assert np.array_equal(weight.matmul(x, isa, team), expected), isa
        assert np.array_equal(weight.matmul(x[:1], isa, team), expected[:1]), isa


@pytest.mark.parametrize("isa", ISAS)
def test_long_rows_of_many_sequences_are_exact(isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(8)
    k = 32768 + 96
    weight = pack("w4", 20, k, team, rng)
    x = rng.standard_normal((40, k)).astype(np.float32)
    w_int, scales = weight.integers()
    assert np.array_equal(weight.matmul(x, isa, team), emulate(w_int, scales, x))


@pytest.mark.parametrize("isa", ISAS)
def test_more_rows_than_a_cache_holds_are_exact(isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(9)
    weight = pack("w8", 40, 4096, team, rng)
    x = rng.standard_normal((219, 4096)).astype(np.float32)
    w_int, scales = weight.integers()
    assert np.array_equal(weight.matmul(x, isa, team), emulate(w_int, scales, x))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", ["f32", "bf16", "w4", "w4symmetric", "w6", "w8"])
@pytest.mark.parametrize("int8", [False, True])
def test_bits_of_a_row_depend_on_neither_neighbours_nor_threads(
    int8: bool, fmt: str, isa: str, team: _native.ThreadTeam
) -> None:
    rng = np.random.default_rng(2)
    n, k = 100, 288
    weight = pack(fmt, n, k, team, rng)
    x = rng.standard_normal((70, k)).astype(np.float32)
    everything = weight.matmul(x, isa, team, int8_activations=int8)
    one = _native.ThreadTeam(1)
    for rows in range(1, 70, 1 if fmt == "w4" else 5):
        some = weight.matmul(x[70 - rows :], isa, one, int8_activations=int8)
        assert np.array_equal(some, everything[70 - rows :]), rows


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", ["f32", "bf16", *INTEGER_FORMATS])
def test_products_with_bias_and_sum_are_close_to_float64(fmt: str, isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(3)
    n, k = 50, 512
    bias = rng.standard_normal(n).astype(np.float32)
    weight = pack(fmt, n, k, team, rng, bias=bias)
    weights = weight.dequantize().astype(np.float64)
    for rows in (1, 4, 5, 16, 35):
        x = rng.standard_normal((rows, k)).astype(np.float32)
        old = rng.standard_normal((rows, n)).astype(np.float32)
        exact = x.astype(np.float64) @ weights.T
        rounded = fmt == "bf16" and isa in ("avx512_bf16", "amx")
        tolerance = 0.005 if rounded else 2e-6 if fmt in ("f32", "bf16") else 3e-4
        limit = tolerance * np.sqrt((exact**2).mean())
        plain = weight.matmul(x, isa, team)
        assert np.abs(plain - exact - bias).max() < 4 * limit
        assert np.array_equal(weight.matmul(x, isa, team, add_to=old), old + plain)
        if fmt in INTEGER_FORMATS:
            rough = weight.matmul(x, isa, team, int8_activations=True)
            assert np.array_equal(rough, emulate_int8(*weight.integers(), x) + bias)
            assert np.array_equal(weight.matmul(x, isa, team, old, int8_activations=True), old + rough)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("rows", [1, 4, 6])
@pytest.mark.parametrize("int8", [False, True])
def test_zeros_infinities_and_nans_stay_in_their_row(int8: bool, rows: int, isa: str, team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(4)
    weight = pack("w4", 33, 96, team, rng)
    clean = rng.standard_normal((rows, 96)).astype(np.float32)
    expected = weight.matmul(clean, isa, team, int8_activations=int8)
    for value, check in ((0.0, lambda out: np.all(out == 0)), (np.inf, lambda out: np.isnan(out).all()),
                         (np.nan, lambda out: np.isnan(out).all())):  # fmt: skip
        x = clean.copy()
        x[0] = 0.0
        x[0, 5] = value
        out = weight.matmul(x, isa, team, int8_activations=int8)
        assert check(out[0])
        assert np.array_equal(out[1:], expected[1:])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("int8", [False, True])
def test_tiny_and_huge_rows_do_not_overflow(int8: bool, isa: str, team: _native.ThreadTeam) -> None:
    weight = pack("w8", 20, 64, team, np.random.default_rng(5))
    x = np.ones((3, 64), dtype=np.float32)
    x[0] *= np.float32(3e38)
    x[1] *= np.float32(2e-30)
    x[2] *= np.float32(1e-38)
    out = weight.matmul(x, isa, team, int8_activations=int8)
    assert np.isfinite(out[1:]).all()
    assert np.all(out[2] == 0)


def test_float32_bits_agree_between_instruction_sets(team: _native.ThreadTeam) -> None:
    rng = np.random.default_rng(6)
    raw = rng.standard_normal(40 * 100).astype(np.float32).view(np.uint8)
    weight = _native.PackedWeight.pack("f32", "F32", raw, 40, 100, team)
    x = rng.standard_normal((13, 100)).astype(np.float32)
    results = [weight.matmul(x, isa, team) for isa in ISAS]
    assert all(np.array_equal(result, results[0]) for result in results)


def test_matmul_refuses_wrong_shapes_and_names(team: _native.ThreadTeam) -> None:
    weight = pack("w8", 20, 64, team, np.random.default_rng(7))
    with pytest.raises(ValueError, match="columns of x is 32, must be 64"):
        weight.matmul(np.zeros((1, 32), dtype=np.float32), "avx2", team)
    with pytest.raises(ValueError, match="instruction_set is 'sse'"):
        weight.matmul(np.zeros((1, 64), dtype=np.float32), "sse", team)
    assert weight.matmul(np.zeros((0, 64), dtype=np.float32), "avx2", team).shape == (0, 20)
