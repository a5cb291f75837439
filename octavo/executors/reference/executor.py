"""The reference executor: the program in numpy, float32, to be read and to be compared with.

It is an oracle within a tolerance (about 1e-5 relative), not to the bit: numpy's matrix product may round a
row otherwise when there are other rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from octavo.engine.step import Step
from octavo.executors.reference import operations as ops
from octavo.executors.reference.kv_memory import KVMemory, StoredDtype, layer_offsets
from octavo.program.operations import (
    Add,
    ApplyRope,
    Embed,
    GatedActivation,
    KVLayer,
    Linear,
    Logits,
    Operation,
    PagedAttention,
    Program,
    RmsNorm,
    SelectRows,
    Value,
    WriteKV,
)

Float32Array = npt.NDArray[np.float32]
KVCacheDtype = Literal["auto", "float32", "int8"]
ObserveLinear = Callable[[Linear, Float32Array], None]


class WeightTensor(Protocol):
    """What the executor needs of a checkpoint's tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def dequantize(self) -> Float32Array:
        """float32 values in the tensor's shape."""
        ...


class WeightSource(Protocol):
    """What the executor needs of a checkpoint."""

    @property
    def tensors(self) -> Mapping[str, WeightTensor]: ...


class ReferenceExecutor:
    """Implements octavo.executors.interface.Executor. Any block size from 1.

    kv_cache_dtype: K and V are kept in float32 ("auto") or in int8. The attribute of this name says which.
    num_threads is there so that all executors are built alike; numpy's matrix library has its own threads.
    Raises ValueError, naming it, for a weight that the checkpoint lacks or has in another shape.
    """

    name = "reference"
    default_kv_cache_dtype = "float32"

    def __init__(
        self,
        program: Program,
        checkpoint: WeightSource,
        num_threads: int = 1,
        kv_cache_dtype: KVCacheDtype = "auto",
    ) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads is {num_threads}, must be at least 1")
        self.kv_cache_dtype = self._resolved(kv_cache_dtype)
        self.vocab_size = program.vocab_size
        self._program = program
        self._matrices = load_matrices(program, checkpoint.tensors)
        self._memory: KVMemory | None = None

    @staticmethod
    def _resolved(kv_cache_dtype: str) -> StoredDtype:
        if kv_cache_dtype in ("auto", "float32"):
            return "float32"
        if kv_cache_dtype != "int8":
            raise ValueError(
                f"kv_cache_dtype is {kv_cache_dtype!r}, must be auto, float32 or int8 (reference executor)"
            )
        return "int8"

    def with_kv_cache_dtype(self, kv_cache_dtype: KVCacheDtype) -> ReferenceExecutor:
        """Another executor of the same weights, with KV memory of its own."""
        twin = copy(self)
        twin.kv_cache_dtype = self._resolved(kv_cache_dtype)
        twin._memory = None
        return twin

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block, of the largest KV group."""
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}; the reference executor needs at least 1")
        return layer_offsets(self._program, self.kv_cache_dtype)[1] * block_size

    def reserve_kv(self, num_blocks: int, block_size: int) -> None:
        """See Executor. A second call replaces the memory; what it held is lost."""
        self.block_bytes(block_size)
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}, must be at least 1")
        self._memory = KVMemory(self._program, num_blocks, block_size, self.kv_cache_dtype)

    def commit_blocks(self, first: int, count: int) -> None:
        """See Executor. Here the first write does it."""

    def release_blocks(self, first: int, count: int) -> None:
        """See Executor."""
        self._kv().release(first, count)

    observe_linear: ObserveLinear | None = None
    """Told every linear, and its input [T, in], before it runs; for measurements"""

    def execute(self, step: Step) -> Float32Array:
        """See Executor. Raises ValueError where the step needs a block that its tables do not map."""
        memory = self._kv()
        memory.copy(step.copies)
        buffers = [np.empty((step.num_tokens, width), np.float32) for width in self._program.buffer_widths]
        run = _Run(step, memory, buffers, self._matrices, self._program.kv_layers, self.observe_linear)
        for operation in self._program.operations[:-1]:
            run.execute(operation)
        return run.logits(self._program.operations[-1])

    def close(self) -> None:
        """See Executor."""
        self._memory = None
        self._matrices = {}

    def _kv(self) -> KVMemory:
        if self._memory is None:
            raise RuntimeError("reserve_kv comes before anything that uses KV blocks")
        return self._memory


Names = tuple[str | None, ...]


def load_matrices(program: Program, tensors: Mapping[str, WeightTensor]) -> dict[Names, Float32Array]:
    """The weights as the operations use them: those of one linear below each other, under all their names.

    A bias that is not there (None) is zeros; a linear without any bias has no entry for them.
    """
    for name, shape in program.weights.items():
        if name not in tensors:
            raise ValueError(f"weight {name} {list(shape)} is missing")
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"weight {name} has shape {list(tensors[name].shape)}, not {list(shape)}")
    matrices: dict[Names, Float32Array] = {}
    for op in program.operations:
        if isinstance(op, Embed | RmsNorm | Logits):
            if (op.weight,) not in matrices:
                matrices[op.weight,] = tensors[op.weight].dequantize()
        elif isinstance(op, Linear):
            matrices[op.weights] = np.concatenate([tensors[name].dequantize() for name in op.weights])
            if any(op.biases):
                matrices[op.biases] = np.concatenate(
                    [
                        tensors[bias].dequantize() if bias else np.zeros(program.weights[name][0], np.float32)
                        for name, bias in zip(op.weights, op.biases, strict=True)
                    ]
                )
    return matrices


@dataclass(frozen=True, slots=True)
class _Run:
    """One step under way."""

    step: Step
    memory: KVMemory
    buffers: list[Float32Array]
    matrices: dict[Names, Float32Array]
    kv_layers: tuple[KVLayer, ...]
    observe_linear: ObserveLinear | None

    def view(self, value: Value) -> Float32Array:
        """The value's rows and columns, to read or to write."""
        rows = self.step.num_tokens if value.rows == "tokens" else len(self.step.logits_rows)
        return self.buffers[value.buffer][:rows, value.offset : value.offset + value.width]

    def logits(self, op: Operation) -> Float32Array:
        """The last operation, which makes the result."""
        assert isinstance(op, Logits)
        return ops.linear(self.view(op.x), self.matrices[op.weight,], None)

    def execute(self, op: Operation) -> None:
        """Any operation but the last."""
        view, step = self.view, self.step
        match op:
            case Embed():
                view(op.out)[:] = ops.embed(step.token_ids, self.matrices[op.weight,], op.scale)
            case RmsNorm():
                view(op.out)[:] = ops.rms_norm(view(op.x), self.matrices[op.weight,], op.eps, op.heads)
            case Linear():
                if self.observe_linear is not None:
                    self.observe_linear(op, view(op.x))
                product = ops.linear(view(op.x), self.matrices[op.weights], self.matrices.get(op.biases))
                view(op.out)[:] = view(op.out) + product if op.accumulate else product
            case ApplyRope():
                view(op.x)[:] = ops.apply_rope(view(op.x), step.positions, op.heads, op.rope)
            case WriteKV():
                kept = self.kv_layers[op.layer]
                ops.write_kv(self.memory, step, op.layer, kept, view(op.k), view(op.v))
            case PagedAttention():
                kept = self.kv_layers[op.layer]
                view(op.out)[:] = ops.paged_attention(self.memory, step, op.layer, kept, view(op.q), op.heads, op.scale)
            case GatedActivation():
                view(op.out)[:] = ops.gated_activation(view(op.gate), view(op.up), op.activation)
            case Add():
                view(op.out)[:] = view(op.a) + view(op.b)
            case SelectRows():
                view(op.out)[:] = view(op.x)[step.logits_rows]
            case Logits():
                raise ValueError("logits is the last operation of a program")
