"""The native executor: packs the weights once, then runs each step in one call with the GIL released."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step
from octavo.executors.native.lowering import lower, takes_int8
from octavo.program.operations import Linear, Program

if TYPE_CHECKING:
    from octavo._native import PackedWeight, ThreadTeam

Dtype = Literal["auto", "bfloat16", "float32"]
KVCacheDtype = Literal["auto", "bfloat16", "float32", "int8"]
ActivationDtype = Literal["auto", "int8"]


class WeightSource(Protocol):
    """A tensor as its file has it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def kind(self) -> str: ...
    @property
    def raw(self) -> npt.NDArray[np.uint8]: ...
    @property
    def row_order(self) -> npt.NDArray[np.int32] | None: ...
    def dequantize(self) -> npt.NDArray[np.float32]: ...


class Weights(Protocol):
    @property
    def tensors(self) -> Mapping[str, WeightSource]: ...


def unsupported_reasons() -> list[str]:
    """Why the native executor cannot be used here; empty where it can."""
    try:
        from octavo import _native
    except ImportError as error:
        return [f"the native library is not built: {error}"]
    try:
        _native.detect_isa()
    except RuntimeError as error:
        return [str(error)]
    return []


class NativeExecutor:
    """Runs a program by the kernels of one instruction set.

    dtype: "auto" keeps quantised weights packed as their file has them (exact integer sums) and others in bfloat16;
    "bfloat16" and "float32" convert all.
    kv_cache_dtype: how K and V are kept; "auto" is float32 for dtype "float32", else bfloat16. The attribute of this
    name says which.
    instruction_set: "avx2", "avx512_vnni", "avx512_bf16", "amx", or None for the best that the machine has.
    activation_dtype: what packed integer weights multiply: "auto", 14-bit integers; or "int8" in the linears that take
    it. Raises ValueError for "int8" where none of these has such weights.
    """

    name = "native"

    def __init__(
        self,
        program: Program,
        weights: Weights,
        dtype: Dtype = "auto",
        num_threads: int = 1,
        instruction_set: str | None = None,
        kv_cache_dtype: KVCacheDtype = "auto",
        activation_dtype: ActivationDtype = "auto",
    ) -> None:
        from octavo import _native

        self.vocab_size = program.vocab_size
        self.instruction_set = instruction_set or _native.detect_isa()
        if not _native.isa_supported(self.instruction_set):
            raise ValueError(
                f"instruction_set is {self.instruction_set!r}, this machine supports at most {_native.detect_isa()!r}"
            )
        self.thread_team = _native.ThreadTeam(num_threads)
        packer = _Packer(weights.tensors, dtype, self.thread_team)
        if activation_dtype not in ("auto", "int8"):
            raise ValueError(f"activation_dtype is {activation_dtype!r}, must be auto or int8")
        int8 = activation_dtype == "int8"
        if int8 and not any(packer.is_integer(name) for name in _weights_for_int8(program)):
            raise ValueError(
                "activation_dtype='int8': is for weights in 4 to 8 bits, and no linear of this model that could take "
                "it has any; use activation_dtype='auto'"
            )
        self._phases = lower(program, packer.pack, packer.read_vector, int8)
        self.weight_bytes = packer.total_bytes
        self.default_kv_cache_dtype = "float32" if dtype == "float32" else "bfloat16"
        self._start(kv_cache_dtype)

    def _start(self, kv_cache_dtype: str) -> None:
        from octavo import _native

        self.kv_cache_dtype = self.default_kv_cache_dtype if kv_cache_dtype == "auto" else kv_cache_dtype
        self._runner = _native.Runner(self._phases, self.instruction_set, self.kv_cache_dtype, self.thread_team)

    def with_kv_cache_dtype(self, kv_cache_dtype: KVCacheDtype) -> NativeExecutor:
        """Another executor of the same weights and threads, with KV memory of its own. They must not run at once."""
        twin = copy(self)
        twin._start(kv_cache_dtype)
        return twin

    def block_bytes(self, block_size: int) -> int:
        if block_size % 8 != 0 or not 8 <= block_size <= 256:
            raise ValueError(f"block_size is {block_size}, must be a multiple of 8 from 8 to 256 (native executor)")
        return int(self._runner.block_bytes(block_size))

    def reserve_kv(self, num_blocks: int, block_size: int) -> None:
        self.block_bytes(block_size)
        self._runner.reserve_kv(num_blocks, block_size)

    def commit_blocks(self, first: int, count: int) -> None:
        self._runner.commit_blocks(first, count)

    def release_blocks(self, first: int, count: int) -> None:
        self._runner.release_blocks(first, count)

    def execute(self, step: Step) -> npt.NDArray[np.float32]:
        logits: npt.NDArray[np.float32] = self._runner.execute(
            step.token_ids,
            step.positions,
            step.query_start_loc,
            step.seq_lens,
            list(step.block_tables),
            step.logits_rows,
            step.copies,
        )
        return logits

    def take_profile(self) -> dict[str, float]:
        """Seconds that the first thread spent since the last call: setup, rows, attention, logits, and linears by
        shape ("linear 576x1536": inputs x outputs). In detail, by operation in place of rows, and waiting."""
        return {name: nanoseconds * 1e-9 for name, nanoseconds in self._runner.take_profile()}

    def profile_in_detail(self, detail: bool) -> None:
        """Whether take_profile() tells operations on rows apart; the numbers computed stay the same."""
        self._runner.profile_in_detail(detail)

    def close(self) -> None:
        del self._runner
        del self._phases
        del self.thread_team


def _weights_for_int8(program: Program) -> list[str]:
    return [name for op in program.operations if isinstance(op, Linear) and takes_int8(op) for name in op.weights]


class _Packer:
    """Packs each weight once, however often the program reads it (a tied embedding is read twice)."""

    def __init__(self, tensors: Mapping[str, WeightSource], dtype: Dtype, team: ThreadTeam) -> None:
        from octavo import _native

        self._tensors = tensors
        self._dtype = dtype
        self._team = team
        self._packed: dict[tuple[str, str | None], PackedWeight] = {}
        self._arena = _native.WeightArena()

    def pack(self, name: str, bias: str | None) -> PackedWeight:
        from octavo import _native

        key = (name, bias)
        if key not in self._packed:
            source = self._tensors[name]
            n, k = source.shape
            bias_values = None if bias is None else self.read_vector(bias)
            weight = _native.PackedWeight.pack(
                self._format(source.kind),
                source.kind,
                source.raw,
                n,
                k,
                self._team,
                source.row_order,
                bias_values,
                self._arena,
            )
            self._packed[key] = weight
        return self._packed[key]

    def is_integer(self, name: str) -> bool:
        """Whether the weight is packed as integers."""
        return self._format(self._tensors[name].kind) not in ("f32", "bf16")

    @property
    def total_bytes(self) -> int:
        return sum(weight.nbytes for weight in self._packed.values())

    def _format(self, kind: str) -> str:
        from octavo import _native

        if self._dtype == "float32":
            return "f32"
        if self._dtype == "bfloat16" or kind in ("F32", "F16", "BF16"):
            return "bf16"
        return str(_native.formats_for(kind)[0])

    def read_vector(self, name: str) -> npt.NDArray[np.float32]:
        return np.ascontiguousarray(self._tensors[name].dequantize(), dtype=np.float32)
