"""The engine's options: the same words in Python and on the command line, checked when they are given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

DType = Literal["auto", "bfloat16", "float32"]
KVCacheDType = Literal["auto", "bfloat16", "float32", "int8"]
ActivationDType = Literal["auto", "int8"]
ExecutorName = Literal["auto", "native", "reference"]
InstructionSet = Literal["avx2", "avx512_vnni", "avx512_bf16", "amx"]

MAX_BLOCK_SIZE = 256
MAX_THREADS = 256
MAX_DRAFT_TOKENS = 64

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str | int, field: str = "size") -> int:
    """Bytes of "512MiB", "1.5GiB", "200MB" or a plain number of bytes.

    MB is 10^6 and MiB 2^20. Raises ValueError that names `field`, the text and the known units.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise ValueError(f"{field}={text!r}: must be a number of bytes or text such as '512MiB'")
    match = _BYTES.fullmatch(str(text))
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{field}={text!r}: must be a positive number with a unit such as MB, MiB, GB or GiB")
    size = int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit
    if not 0 < size < 2**63:
        raise ValueError(f"{field}={text!r}: must be from 1 to 2^63 - 1 bytes, it is {size}")
    return size


def format_bytes(size: float) -> str:
    """A size for people: 1610612736 -> "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What a user may say about an engine. Raises ValueError at construction, with field, value and limit."""

    model: str
    """An alias (smollm2, gemma3-270m), a GGUF file or a directory of safetensors"""
    dtype: DType = "auto"
    """Compute format. auto: as the weights are stored, packed; float32: full precision"""
    activation_dtype: ActivationDType = "auto"
    """What linears with weights in 4 to 8 bits multiply. auto: 14-bit integers, exactly; int8: mostly 8 bits, with a
    scale per 32 inputs: faster where AMX is missing, and less accurate"""
    block_size: int | Literal["auto"] = 64
    """Tokens in a KV block: a multiple of 8 from 8 to 256; the reference executor takes 1 to 7 too. auto: what
    `octavo tune` found for this model on this machine"""
    kv_cache_dtype: KVCacheDType = "auto"
    """Format of K and V in the blocks. auto: float32 with dtype float32, else bfloat16; int8: half of bfloat16's
    memory, with a warning where that would spoil the model's answers"""
    kv_cache_memory: str | int | None = None
    """Cap of the KV blocks in bytes, or as "512MiB"; None: a share of the memory that is really free"""
    max_model_len: int | None = None
    """Longest prompt + answer in tokens; None: what the model was made for"""
    max_num_seqs: int = 256
    """Most sequences that run at once"""
    max_num_batched_tokens: int = 2048
    """Most tokens in a step"""
    max_draft_tokens: int = 8
    """Most tokens that a step computes on trial behind each sequence's last one, as its own text lets expect them; the
    answers are the same, sooner. 0: none"""
    enable_prefix_caching: bool = True
    threads: int | None = None
    """None: the cores that the process may really use (affinity and cgroup quota)"""
    executor: ExecutorName = "auto"
    """auto: native, else reference with a warning"""
    instruction_set: InstructionSet | None = None
    """Forces a lower instruction set than the machine's best"""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(f"model={self.model!r}: must be an alias, a file or a directory")
        for field, choices in (
            ("dtype", get_args(DType)),
            ("activation_dtype", get_args(ActivationDType)),
            ("kv_cache_dtype", get_args(KVCacheDType)),
            ("executor", get_args(ExecutorName)),
            ("instruction_set", (None, *get_args(InstructionSet))),
        ):
            value = getattr(self, field)
            if value not in choices:
                known = ", ".join(str(choice) for choice in choices)
                raise ValueError(f"{field}={value!r}: must be one of {known}")
        self._check_int("max_model_len", 1, 2**31 - 1, optional=True)
        self._check_int("max_num_seqs", 1, 65536)
        self._check_int("max_num_batched_tokens", 1, 2**20)
        self._check_int("max_draft_tokens", 0, MAX_DRAFT_TOKENS)
        self._check_int("threads", 1, MAX_THREADS, optional=True)
        if self.block_size != "auto":
            self._check_int("block_size", 1, MAX_BLOCK_SIZE)
        if not isinstance(self.enable_prefix_caching, bool):
            raise ValueError(f"enable_prefix_caching={self.enable_prefix_caching!r}: must be True or False")
        self._check_block_size()
        if self.activation_dtype == "int8" and self.dtype != "auto":
            raise ValueError(
                f"activation_dtype='int8': is for weights in 4 to 8 bits, dtype={self.dtype!r} converts them; "
                "use it with dtype='auto'"
            )
        if self.kv_cache_memory is not None:
            parse_bytes(self.kv_cache_memory, "kv_cache_memory")
        if self.instruction_set is not None and self.executor == "reference":
            raise ValueError(
                f"instruction_set={self.instruction_set!r}: the reference executor has none; "
                "use it with executor='native' or 'auto'"
            )

    def _check_int(self, field: str, low: int, high: int, optional: bool = False) -> None:
        value = getattr(self, field)
        if optional and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{field}={value!r}: must be an integer from {low} to {high}")

    def _check_block_size(self) -> None:
        if (
            self.block_size == "auto"
            or self.block_size % 8 == 0
            or (self.block_size < 8 and self.executor == "reference")
        ):
            return
        raise ValueError(
            f"block_size={self.block_size}: must be a multiple of 8 from 8 to {MAX_BLOCK_SIZE}"
            + ("" if self.executor == "reference" else " (executor='reference' takes 1 to 7 too)")
        )

    @property
    def kv_cache_bytes(self) -> int | None:
        """kv_cache_memory in bytes; None where it is to be found out."""
        return None if self.kv_cache_memory is None else parse_bytes(self.kv_cache_memory, "kv_cache_memory")
