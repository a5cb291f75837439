"""What the engine is told once, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Sizes of an engine. Raises ValueError naming the field, its value and its limit."""

    num_blocks: int
    """Cap of the block pool, shared by all KV groups"""
    block_size: int
    """Tokens of a block"""
    max_model_len: int
    """Longest prompt plus output of a sequence, in tokens"""
    max_num_seqs: int = 256
    """Most sequences (not requests) that run at once"""
    max_num_batched_tokens: int = 2048
    """Token budget of a step"""
    enable_prefix_caching: bool = True
    max_logits_rows: int = 256
    """Most rows of a step whose logits are computed: bounds the memory that prompt_logprobs takes"""
    cache_namespace: str | bytes = b""
    """What the KV of this engine depends on (model fingerprint, KV dtype, rope setting): part of every prefix
    key"""
    max_draft_tokens: int = 0
    """Most tokens a sequence that a step computes on trial (octavo.engine.speculation); 0: none"""
    segment_blocks: int = 64
    """Blocks of a segment, the unit in which KV memory is committed and given back"""

    def __post_init__(self) -> None:
        for name, least in (
            ("num_blocks", 1),
            ("block_size", 1),
            ("max_model_len", 1),
            ("max_num_seqs", 1),
            ("max_num_batched_tokens", 1),
            ("max_logits_rows", 1),
            ("max_draft_tokens", 0),
            ("segment_blocks", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name}={value!r}: must be an integer")
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
