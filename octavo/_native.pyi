"""Native kernels of Octavo."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


def detect_isa() -> str: ...

def isa_supported(arg: str, /) -> bool: ...

class ThreadTeam:
    def __init__(self, num_threads: int) -> None: ...

    @property
    def size(self) -> int: ...

def formats_for(kind: str) -> list[str]:
    """Formats a tensor kind can be packed into, the closest first."""

class WeightArena:
    """
    Shared memory of many packed weights, in huge pages where the system has them.
    """

    def __init__(self) -> None: ...

    @property
    def reserved_bytes(self) -> int: ...

class PackedWeight:
    """A weight matrix [n, k] in the order in which the kernels read it."""

    @staticmethod
    def pack(format: str, kind: str, raw: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], n: int, k: int, team: ThreadTeam, row_order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None, arena: WeightArena | None = None) -> PackedWeight: ...

    @property
    def format(self) -> str: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def panels(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def matmul(self, x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], isa: str, team: ThreadTeam, add_to: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None = None, int8_activations: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        x [rows, k] times the transposed weight (+ bias) (+ add_to): [rows, n] float32.
        """

    def time_matmul(self, rows: int, isa: str, team: ThreadTeam, repeats: int = 10, int8_activations: bool = False) -> float:
        """
        The least time in seconds of one product, its input's preparation included.
        """

    def dequantize(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """float32 [n, k]: what the packed form represents."""

    def integers(self) -> tuple:
        """(w_int int16 [n, k], D float32 [n, 1]) of an integer format."""

def time_linears(weights: Sequence[PackedWeight], rows: int, isa: str, team: ThreadTeam, repeats: int = 5, int8_activations: bool = False) -> float:
    """
    Seconds of all linears in order, inputs prepared: the sum of each one's least time.
    """

class KvCache:
    def __init__(self, num_blocks: int, block_size: int, places: int, kv_heads: int, head_dim: int, dtype: str) -> None: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def block_bytes(self) -> int: ...

    @property
    def reserved_bytes(self) -> int: ...

    def write(self, place: int, k: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], v: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], isa: str = 'avx2') -> None: ...

    def commit(self, first: int, count: int) -> None: ...

    def release(self, first: int, count: int) -> None: ...

    def copy_block(self, source: int, destination: int) -> None: ...

    def block(self, id: int) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """The bytes of a block, writable."""

def attention(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], cache: KvCache, place: int, query_start_loc: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], seq_lens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_table: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], heads: int, kv_heads: int, window: int, scale: float, isa: str, team: ThreadTeam) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]: ...

def time_attention(q: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], cache: KvCache, query_start_loc: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], seq_lens: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_table: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], heads: int, kv_heads: int, window: int, scale: float, isa: str, team: ThreadTeam, repeats: int) -> object: ...

class SamplingRow:
    @staticmethod
    def make(*, inverse_temperature: float, top_p: float, top_k: int, min_p: float, repetition_penalty: float, frequency_penalty: float, presence_penalty: float, seed: int, sequence_index: int, min_tokens: int, logprobs: int, end_ids: Sequence[int], bias_ids: Sequence[int], bias_values: Sequence[float]) -> SamplingRow: ...

    def set_position(self, arg: int, /) -> None: ...

    def set_counts(self, ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], counts: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def set_allowed_mask(self, mask: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None) -> None: ...

    def append(self, arg: int, /) -> None: ...

class BatchSampler:
    def __init__(self, vocab_size: int, threads: ThreadTeam, instruction_set: str = '') -> None: ...

    def sample(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], rows: list, numbers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def sample_with_logprobs(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], rows: list, numbers: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], ranks: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], top_ids: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], top_logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

    def score(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], ranks: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], top_ids: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], top_logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

    def continuations(self, logits: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: list, top_ids: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], top_logprobs: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None: ...

def philox4x32(arg0: Sequence[int], arg1: Sequence[int], /) -> list[int]: ...

class PhaseList:
    def add_embed(self, arg0: tuple[int, int, int, bool], arg1: PackedWeight, arg2: float, /) -> None: ...

    def add_rms_norm(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], arg2: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: float, arg4: int, /) -> None: ...

    def add_rope(self, arg0: tuple[int, int, int, bool], arg1: int, arg2: int, arg3: int, /) -> None: ...

    def add_write_kv(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], arg2: int, arg3: int, arg4: int, arg5: int, /) -> None: ...

    def add_attention(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], arg2: int, arg3: int, arg4: int, arg5: int, arg6: int, arg7: float, arg8: int, /) -> None: ...

    def add_gated_activation(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], arg2: tuple[int, int, int, bool], arg3: str, /) -> None: ...

    def add_sum(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], arg2: tuple[int, int, int, bool], /) -> None: ...

    def add_select_rows(self, arg0: tuple[int, int, int, bool], arg1: tuple[int, int, int, bool], /) -> None: ...

    def add_linear(self, out: tuple[int, int, int, bool], x: tuple[int, int, int, bool], weights: Sequence[PackedWeight], accumulate: bool, int8_activations: bool) -> None: ...

    def add_logits(self, arg0: tuple[int, int, int, bool], arg1: PackedWeight, /) -> None: ...

def make_phase_list(buffer_widths: Sequence[int], ropes: Sequence[tuple[Sequence[float], float]], num_groups: int, places_per_block: int, vocab_size: int) -> PhaseList:
    """ropes are (inv_freq, attention_scaling)."""

class Runner:
    def __init__(self, program: PhaseList, instruction_set: str, kv_dtype: str, team: ThreadTeam) -> None: ...

    def block_bytes(self, arg: int, /) -> int: ...

    def reserve_kv(self, arg0: int, arg1: int, /) -> None: ...

    def commit_blocks(self, arg0: int, arg1: int, /) -> None: ...

    def release_blocks(self, arg0: int, arg1: int, /) -> None: ...

    def execute(self, arg0: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Sequence[Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]], arg5: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], /) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C')]: ...

    @property
    def arena_bytes(self) -> int: ...

    def few_row_meetings(self) -> list[tuple[str, bool]]: ...

    def take_profile(self) -> list[tuple[str, int]]: ...

    def profile_in_detail(self, arg: bool, /) -> None: ...

def time_reads(bytes: int, isa: str, team: ThreadTeam, repeats: int = 5) -> float:
    """
    Bytes a second that the team reads from a memory of so many bytes, over and over: the best of `repeats`.
    """

def time_products(kind: str, isa: str, team: ThreadTeam, repeats: int = 5) -> float:
    """
    Operations a second (a product and its addition are two) on values in registers, the best of `repeats`. kind: int8,
    bf16 or float32; 0 where the instruction set has no such products.
    """

def time_row_operation(name: str, rows: int, width: int, heads: int, isa: str, team: ThreadTeam, repeats: int = 5) -> float:
    """
    Least seconds of one operation on rows [rows, width]: rms_norm, rope, silu_mul, gelu_tanh_mul, add,
    prepare_integers, prepare_int8, prepare_bf16. heads: into how many parts of its own rms_norm and rope divide a row.
    """
