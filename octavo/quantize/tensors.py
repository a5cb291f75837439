"""Which kind each tensor of a model gets, and its bytes, made piece by piece on several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.loaders.gguf import GgufFile
from octavo.loaders.gguf_names import canonical_name, gguf_name, rotary_row_order
from octavo.loaders.gguf_writer import NewTensor
from octavo.loaders.tensor_source import TensorSource
from octavo.models.model_config import ModelConfig
from octavo.quantize.blocks import VALUES_PER_BLOCK, quantize_blocks

Format = Literal["w4", "w8"]
FORMATS: Final = get_args(Format)
FLOAT_KINDS: Final = ("F32", "F16", "BF16")

_KINDS: Final = {"w4": "Q4_1", "w8": "Q8_0"}
# Kept in 8 bits by both formats: they are few, or every token passes through them twice, and the divergence shows it.
_PRECISE: Final = ("embed_tokens.weight", "lm_head.weight", "self_attn.v_proj.weight")
_VALUES_PER_PIECE: Final = 1 << 20
_ROTATED: Final = ("self_attn.q_proj.", "self_attn.k_proj.")


@dataclass(frozen=True, slots=True, eq=False)
class Conversion:
    """A tensor of the original, in the order of rows that the new file has, and the kind it gets there."""

    source: TensorSource
    name: str
    """in the new file"""
    kind: str
    canonical: str
    """the name that the model's program has for it"""
    importance: NDArray[np.float32] | None = None
    """[in], of a matrix: how much the errors of a column count"""


def target_kind(name: str, shape: Sequence[int], kind: str, target: Format) -> str:
    """The kind in the new file of the tensor with the canonical `name`, now of `kind`.

    Vectors become F32. Matrices whose rows are no whole blocks stay what they are.
    """
    if len(shape) == 1:
        return "F32"
    if shape[-1] % VALUES_PER_BLOCK:
        return kind
    return "Q8_0" if name.endswith(_PRECISE) else _KINDS[target]


def directory_conversions(tensors: Sequence[TensorSource], config: ModelConfig, target: Format) -> list[Conversion]:
    """Conversions of the tensors of a directory, under the names and in the row order of a GGUF file."""
    conversions = []
    for source in tensors:
        kind = target_kind(source.name, source.shape, source.kind, target)
        if config.family in ("llama", "mistral") and any(part in source.name for part in _ROTATED):
            order = rotary_row_order(source.shape[0] // config.head_dim, config.head_dim)
            source = replace(source, row_order=np.argsort(order).astype(np.int32))
        conversions.append(Conversion(source, gguf_name(source.name, config.family), kind, source.name))
    return conversions


def gguf_conversions(file: GgufFile, config: ModelConfig, target: Format) -> list[Conversion]:
    """Conversions of the tensors of a GGUF file, which keep their names and their order of rows."""
    conversions = []
    for tensor in file.tensors.values():
        source = TensorSource(tensor.name, tensor.shape, tensor.kind, tensor.raw)
        name = canonical_name(tensor.name, config.family) or tensor.name
        kind = target_kind(name, tensor.shape, tensor.kind, target)
        conversions.append(Conversion(source, tensor.name, kind, name))
    return conversions


class Pieces:
    """Makes the bytes of conversions, a million values at a time."""

    def __init__(self, pool: Executor, ahead: int) -> None:
        """At most `ahead` pieces are being made by `pool`, or wait to be taken."""
        self._pool = pool
        self._ahead = ahead

    def of(self, conversion: Conversion) -> Iterator[NDArray[np.uint8]]:
        """The bytes of a tensor, in order. Raises ValueError, naming it, where a value is not finite or does not fit
        the kind."""
        source = conversion.source
        rows = max(1, _VALUES_PER_PIECE // (prod(source.shape) // source.num_rows))
        running: deque[Future[NDArray[np.uint8]]] = deque()
        try:
            for first in range(0, source.num_rows, rows):
                running.append(self._pool.submit(_piece, conversion, first, min(first + rows, source.num_rows)))
                if len(running) >= self._ahead:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def new_tensors(conversions: Sequence[Conversion], pieces: Pieces | None = None) -> list[NewTensor]:
    """The tensors to write, made by `pieces`; without it their names, shapes and kinds only."""
    make = (lambda _: iter(())) if pieces is None else pieces.of
    return [NewTensor(each.name, each.source.shape, each.kind, partial(make, each)) for each in conversions]


def _piece(conversion: Conversion, first: int, last: int) -> NDArray[np.uint8]:
    """The bytes of rows first to last - 1."""
    source, kind = conversion.source, conversion.kind
    values = source.dequantize_rows(first, last)
    try:
        if not np.isfinite(values).all():
            raise ValueError("holds a value that is not finite")
        if kind == source.kind and not source.offset:
            return _stored_rows(source, first, last)
        if kind == "F32":
            return values.astype("<f4").reshape(-1).view(np.uint8)
        return quantize_blocks(kind, values, conversion.importance)
    except ValueError as error:
        raise ValueError(f"tensor {source.name!r}, rows {first} to {last - 1}: {error}") from None


def _stored_rows(source: TensorSource, first: int, last: int) -> NDArray[np.uint8]:
    rows = source.raw.reshape(source.num_rows, -1)
    part = rows[first:last] if source.row_order is None else rows[source.row_order[first:last]]
    return part.reshape(-1)
