"""Native paged attention against a float64 oracle that knows no blocks, on every instruction set at hand."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from octavo import _native
from octavo.executors.reference.kv_memory import encode_int8, rotate

FloatArray = npt.NDArray[np.float32]
Int32Array = npt.NDArray[np.int32]

ISAS = [isa for isa in ("avx2", "avx512_vnni", "avx512_bf16", "amx") if _native.isa_supported(isa)]
VARIANTS = [(isa, dtype) for isa in ISAS for dtype in ("float32", "bfloat16", "int8")]
TEAMS = {size: _native.ThreadTeam(size) for size in (1, 2, 3)}
# Largest error relative to the largest value: bf16 products round q and weights to bf16, int8 caches both to 16 bits.
TOLERANCE = {"float32": 5e-6, "bfloat16": 5e-6, "int8": 5e-4, "bf16 products": 1.2e-2}
BF16_PRODUCTS = ("avx512_bf16", "amx")


def tolerance(isa: str, dtype: str) -> float:
    return TOLERANCE["bf16 products" if isa in BF16_PRODUCTS and dtype == "bfloat16" else dtype]


def round_bf16(x: FloatArray) -> FloatArray:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def round_int8(x: FloatArray) -> FloatArray:
    codes, scales = encode_int8(x)
    return codes * scales


def stored(k: FloatArray, v: FloatArray, dtype: str) -> tuple[FloatArray, FloatArray]:
    """What a cache makes of k and v."""
    if dtype == "bfloat16":
        return round_bf16(k), round_bf16(v)
    if dtype == "int8":
        block = k.shape[-1] & -k.shape[-1]
        return rotate(round_int8(rotate(k))) / np.float32(block), round_int8(v)
    return k, v


@dataclass(frozen=True)
class Context:
    """One sequence: q of every token of it, and its whole k and v."""

    q: FloatArray
    k: FloatArray
    v: FloatArray

    def __len__(self) -> int:
        return len(self.q)


def make_context(length: int, heads: int, kv_heads: int, head_dim: int, seed: int = 0) -> Context:
    rng = np.random.default_rng((seed, length, heads, head_dim))
    q = 2 * rng.standard_normal((length, heads * head_dim), dtype=np.float32)
    k, v = rng.standard_normal((2, length, kv_heads, head_dim), dtype=np.float32)
    return Context(q, k, v)


def expected(context: Context, new: int, heads: int, window: int, scale: float, dtype: str) -> FloatArray:
    """Attention of the last `new` tokens in float64, over the K and V that the cache stores."""
    k, v = stored(context.k, context.v, dtype)
    length, kv_heads, head_dim = k.shape
    q = context.q[length - new :].astype(np.float64).reshape(new, kv_heads, heads // kv_heads, head_dim)
    scores = np.einsum("tkgd,pkd->kgtp", q, k.astype(np.float64)) * scale
    row, column = np.arange(length - new, length)[:, None], np.arange(length)[None]
    seen = (column <= row) & ((column > row - window) if window else True)
    scores[..., ~seen] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("kgtp,pkd->tkgd", weights, v.astype(np.float64)).reshape(new, -1)


@dataclass
class Batch:
    """Puts contexts into a cache with shuffled blocks and computes attention for the last tokens of each."""

    contexts: list[Context]
    heads: int
    isa: str
    dtype: str
    block_size: int = 32
    window: int = 0
    scale: float | None = None
    place: int = 1
    threads: int = 2
    poison: float | None = None
    tables: list[Int32Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        _, self.kv_heads, self.head_dim = self.contexts[0].k.shape
        if self.scale is None:
            self.scale = self.head_dim**-0.5
        blocks = [-(-len(context) // self.block_size) for context in self.contexts]
        self.cache = _native.KvCache(
            num_blocks=sum(blocks) + 3,
            block_size=self.block_size,
            places=2,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            dtype=self.dtype,
        )
        if self.poison is not None:
            self.fill(self.poison)
        ids = np.random.default_rng(5).permutation(sum(blocks) + 3).astype(np.int32)
        for count, context in zip(blocks, self.contexts, strict=True):
            table, ids = ids[:count], ids[count:]
            self.tables.append(table)
            self.cache.write(self.place, context.k, context.v, self.slots(table, len(context)))

    def slots(self, table: Int32Array, length: int) -> Int32Array:
        positions = np.arange(length)
        block, offset = np.divmod(positions, self.block_size)
        return (table[block] * self.block_size + offset).astype(np.int32)

    def fill(self, value: float) -> None:
        slots = np.arange(self.cache.num_blocks * self.block_size, dtype=np.int32)
        rows = np.full((len(slots), self.kv_heads, self.head_dim), value, np.float32)
        self.cache.write(self.place, rows, rows, slots)

    def run(self, steps: list[tuple[int, int, int]]) -> list[FloatArray]:
        """One step over (context number, first new token, context length after the step) triples."""
        lengths = [end - first for _, first, end in steps]
        tables = np.full((len(steps), max(map(len, self.tables)) + 1), -1, np.int32)
        for row, (number, first, end) in enumerate(steps):
            behind = max(0, first - self.window + 1) // self.block_size if self.window else 0
            used = -(-end // self.block_size)
            tables[row, behind:used] = self.tables[number][behind:used]
        starts = np.cumsum([0, *lengths]).astype(np.int32)
        out = _native.attention(
            np.concatenate([self.contexts[number].q[first:end] for number, first, end in steps]),
            self.cache,
            self.place,
            starts,
            np.array([end for _, _, end in steps], np.int32),
            tables,
            self.heads,
            self.kv_heads,
            self.window,
            self.scale,
            self.isa,
            TEAMS[self.threads],
        )
        return np.split(out, starts[1:-1])

    def check(self, steps: list[tuple[int, int, int]], slack: float = 1.0) -> None:
        for (number, first, end), out in zip(steps, self.run(steps), strict=True):
            whole = self.contexts[number]
            context = Context(whole.q[:end], whole.k[:end], whole.v[:end])
            assert self.scale is not None
            want = expected(context, end - first, self.heads, self.window, self.scale, self.dtype)
            limit = slack * tolerance(self.isa, self.dtype) * np.abs(want).max()
            assert np.abs(out - want).max() <= limit, (number, first, end)


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("head_dim", [1, 16, 32, 40, 64, 80, 96, 100, 112, 128, 144, 256, 257, 512])
def test_every_head_dim_with_every_block_size(isa: str, dtype: str, head_dim: int) -> None:
    contexts = [make_context(length, 3, 1, head_dim) for length in (45, 8, 70)]
    for block_size in (8, 16, 24, 32, 40, 64, 256):
        Batch(contexts, 3, isa, dtype, block_size).check([(0, 44, 45), (1, 0, 8), (2, 37, 70)])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("heads,kv_heads", [(1, 1), (2, 2), (9, 3), (16, 4), (8, 1), (9, 1), (71, 1)])
def test_any_number_of_query_heads_per_kv_head(isa: str, dtype: str, heads: int, kv_heads: int) -> None:
    contexts = [make_context(length, heads, kv_heads, 64) for length in (33, 100)]
    Batch(contexts, heads, isa, dtype).check([(0, 0, 33), (1, 99, 100), (1, 60, 93)])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("length", [511, 512, 513, 1500])
def test_contexts_around_and_over_a_partition(isa: str, dtype: str, length: int) -> None:
    contexts = [make_context(length, 4, 1, 32), make_context(3, 4, 1, 32)]
    batch = Batch(contexts, 4, isa, dtype)
    batch.check([(0, length - 1, length)])
    batch.check([(1, 0, 3), (0, length - 50, length), (1, 2, 3)])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("window", [1, 7, 32, 100, 512, 2000])
def test_window_sees_nothing_behind_it(isa: str, dtype: str, window: int) -> None:
    contexts = [make_context(1100, 2, 1, 32), make_context(40, 2, 1, 32)]
    for block_size in (16, 64):
        batch = Batch(contexts, 2, isa, dtype, block_size, window=window)
        batch.check([(0, 1099, 1100), (1, 0, 40), (0, 1000, 1100)])


@pytest.mark.parametrize("isa", ISAS)
def test_large_scores_and_a_scale_of_its_own(isa: str) -> None:
    # Scores up to 100: their own float32 rounding is what is left.
    context = make_context(700, 2, 2, 64)
    Batch([context], 2, isa, "float32", scale=1.5).check([(0, 600, 700)], slack=10)


@pytest.mark.parametrize("isa,dtype", VARIANTS)
def test_a_row_does_not_depend_on_batch_chunks_block_size_or_threads(isa: str, dtype: str) -> None:
    contexts = [make_context(length, 9, 3, 64) for length in (600, 90, 1, 560)]
    reference: list[FloatArray] | None = None
    for block_size, threads in ((32, 1), (8, 2), (16, 3), (64, 2), (256, 2), (24, 1)):
        batch = Batch(contexts, 9, isa, dtype, block_size, threads=threads)
        together = batch.run([(i, 0, len(context)) for i, context in enumerate(contexts)])
        if reference is None:
            reference = together
        for number, context in enumerate(contexts):
            assert np.array_equal(together[number], reference[number])
            assert np.array_equal(batch.run([(number, 0, len(context))])[0], reference[number])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("chunk", [1, 7, 16, 64])
@pytest.mark.parametrize("window", [0, 130])
def test_chunks_give_the_bits_of_the_whole(isa: str, dtype: str, chunk: int, window: int) -> None:
    length = 1100
    context, other = make_context(length, 9, 3, 32), make_context(70, 9, 3, 32)
    batch = Batch([context, other], 9, isa, dtype, window=window)
    whole = batch.run([(0, 0, length)])[0]
    starts = range(480, 560, chunk) if chunk < 16 else range(0, length, chunk)
    for index, start in enumerate(starts):
        end = min(length, start + chunk)
        steps = [(0, start, end)] if index % 2 else [(1, 0, 70), (0, start, end), (1, 69, 70)]
        batch.threads = 1 + index % 3
        assert np.array_equal(batch.run(steps)[index % 2 == 0], whole[start:end]), start


@pytest.mark.parametrize("isa,dtype", VARIANTS)
def test_a_long_single_stream_is_split_without_a_trace(isa: str, dtype: str) -> None:
    length = 4000
    context = make_context(length, 3, 1, 64)
    batch = Batch([context], 3, isa, dtype, threads=1)
    alone = batch.run([(0, length - 3, length)])[0]
    for threads in (2, 3):
        batch.threads = threads
        assert np.array_equal(batch.run([(0, length - 3, length)])[0], alone)
    batch.check([(0, length - 3, length)])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 3e38])
def test_slots_that_a_row_must_not_see_do_not_reach_it(isa: str, dtype: str, poison: float) -> None:
    contexts = [make_context(length, 3, 1, 40) for length in (5, 45, 530)]
    steps = [(0, 0, 5), (1, 44, 45), (2, 500, 530)]
    for block_size in (8, 64):
        clean = Batch(contexts, 3, isa, dtype, block_size).run(steps)
        poisoned = Batch(contexts, 3, isa, dtype, block_size, poison=poison).run(steps)
        for a, b in zip(clean, poisoned, strict=True):
            assert np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("isa,dtype", VARIANTS)
def test_raw_nan_keys_in_unwritten_slots_do_not_reach_a_row(isa: str, dtype: str) -> None:
    context = make_context(45, 3, 1, 40)
    clean = Batch([context], 3, isa, dtype).run([(0, 0, 45)])[0]
    batch = Batch([context], 3, isa, dtype)
    for block in range(batch.cache.num_blocks):
        place = batch.cache.block(block).reshape(2, 2, -1)[1]
        place[0] = 0xFF
        # V: a large finite number in the float types; in int8 any codes, and scales that are NaN
        place[1] = 0xFF if dtype == "int8" else 0x7B
    batch.cache.write(1, context.k, context.v, batch.slots(batch.tables[0], 45))
    assert np.array_equal(batch.run([(0, 0, 45)])[0], clean)


@pytest.mark.parametrize("isa,dtype", VARIANTS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_token_breaks_exactly_the_rows_that_see_it(isa: str, dtype: str, value: float) -> None:
    context = make_context(600, 3, 1, 40)
    broken = Context(context.q, context.k.copy(), context.v.copy())
    broken.v[530, 0, 7] = value
    for window in (0, 20):
        steps = [(0, 500, 600)]
        clean = Batch([context], 3, isa, dtype, window=window).run(steps)[0]
        out = Batch([broken], 3, isa, dtype, window=window).run(steps)[0]
        rows = np.arange(500, 600)
        sees = (rows >= 530) & (rows < 530 + window if window else True)
        assert np.isnan(out[sees]).all()
        assert np.array_equal(out[~sees], clean[~sees])


@pytest.mark.parametrize("isa,dtype", VARIANTS)
def test_layers_of_smaller_shape_share_a_cache(isa: str, dtype: str) -> None:
    # Four heads of 32 are as long as two of 64, but for their scales in int8.
    kv_heads = 3 if dtype == "int8" else 2
    cache = _native.KvCache(num_blocks=3, block_size=32, places=2, kv_heads=kv_heads, head_dim=64, dtype=dtype)
    context = make_context(50, 4, 4, 32)
    cache.write(1, context.k, context.v, (np.arange(50) + 32).astype(np.int32))
    out = _native.attention(
        context.q, cache, 1, np.array([0, 50], np.int32), np.array([50], np.int32),
        np.array([[1, 2]], np.int32), 4, 4, 0, 32**-0.5, isa, TEAMS[2],
    )  # fmt: skip
    want = expected(context, 50, 4, 0, 32**-0.5, dtype)
    assert np.abs(out - want).max() <= tolerance(isa, dtype) * np.abs(want).max()


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("heads,kv_heads,head_dim", [(9, 3, 64), (1, 1, 96), (4, 1, 256)])
def test_the_same_bits_on_every_instruction_set(dtype: str, heads: int, kv_heads: int, head_dim: int) -> None:
    context = make_context(700, heads, kv_heads, head_dim)
    results = [Batch([context], heads, isa, dtype).run([(0, 650, 700)])[0] for isa in ISAS]
    assert all(np.array_equal(result, results[0]) for result in results)


@pytest.mark.parametrize("window", [0, 40])
@pytest.mark.parametrize("block_size", [8, 16, 64])
@pytest.mark.parametrize(
    "heads,kv_heads,head_dim", [(1, 1, 32), (3, 1, 64), (8, 2, 96), (8, 1, 128), (3, 3, 256), (16, 1, 40), (2, 1, 512)]
)
def test_int8_has_the_same_bits_with_any_number_of_rows(
    heads: int, kv_heads: int, head_dim: int, block_size: int, window: int
) -> None:
    """Kernels differ in how many rows they take at once: decode, prefill and rows around their blocks in one batch."""
    contexts = [make_context(length, heads, kv_heads, head_dim) for length in (1060, 530, 45)]
    contexts[1].v[520, 0, 3] = np.nan
    group = heads // kv_heads
    counts = [-(-rows // group) for rows in (8, 9, 16, 17, 31, 32, 33, 40)]
    steps = [(index % 2, 530 - count, 530) for index, count in enumerate(counts)]
    steps += [(2, 0, 45), (0, 1059, 1060), (0, 980, 1060), (2, 0, 1)]
    results = [
        Batch(contexts, heads, isa, "int8", block_size, window, threads=1 + len(isa) % 2).run(steps) for isa in ISAS
    ]
    for result in results:
        for out, first in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(out, first)
    assert np.isnan(results[0][1]).any()
    assert np.isfinite(results[0][0]).all()


def test_int8_keeps_small_dims_beside_an_outlier() -> None:
    """One dim of K is a hundred times the others, as biases make it: the rotation leaves them their resolution."""
    context = make_context(300, 3, 1, 64)
    context.k[..., 7] += 100
    want = expected(context, 20, 3, 0, 0.125, "float32")
    out = Batch([context], 3, "avx2", "int8").run([(0, 280, 300)])[0]
    plain = expected(Context(context.q, round_int8(context.k), round_int8(context.v)), 20, 3, 0, 0.125, "float32")
    assert np.abs(out - want).mean() < np.abs(plain - want).mean() / 2


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_int8_key_breaks_exactly_the_rows_that_see_it(value: float) -> None:
    context = make_context(100, 3, 1, 40)
    broken = Context(context.q, context.k.copy(), context.v)
    broken.k[60, 0, 7] = value
    clean = Batch([context], 3, "avx2", "int8").run([(0, 0, 100)])[0]
    out = Batch([broken], 3, "avx2", "int8").run([(0, 0, 100)])[0]
    assert np.isnan(out[60:]).all()
    assert np.array_equal(out[:60], clean[:60])


def test_a_broken_query_is_its_own_rows_trouble() -> None:
    context = make_context(40, 3, 1, 40)
    broken = Context(context.q.copy(), context.k, context.v)
    broken.q[30, :40] = np.nan  # the first head
    clean = Batch([context], 3, "avx2", "int8").run([(0, 0, 40)])[0]
    out = Batch([broken], 3, "avx2", "int8").run([(0, 0, 40)])[0]
    assert np.isnan(out[30, :40]).all()
    clean[30, :40] = out[30, :40] = 0
    assert np.array_equal(out, clean)


def test_an_unmapped_block_in_sight_is_refused() -> None:
    context = make_context(40, 1, 1, 16)
    batch = Batch([context], 1, ISAS[0], "float32")
    batch.tables[0] = np.array([-1, 0], np.int32)
    with pytest.raises(ValueError, match="block_table has -1"):
        batch.run([(0, 39, 40)])


def test_an_empty_step_gives_nothing() -> None:
    context = make_context(40, 1, 1, 16)
    batch = Batch([context], 1, ISAS[0], "float32")
    out = batch.run([(0, 40, 40), (0, 39, 40)])
    assert out[0].shape == (0, 16)
    assert out[1].shape == (1, 16)
