"""What an engine can take on: checked before a request is queued."""

from __future__ import annotations

from bisect import bisect_right

from octavo.beam_search_params import BeamSearchParams
from octavo.engine.beam_steps import check_width
from octavo.engine.engine_config import EngineConfig
from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request


def check_request(request: Request, config: EngineConfig, vocab_size: int) -> None:
    """Raises ValueError where its prompt or the number of its sequences is out of bounds."""
    prompt, limit = request.prompt_token_ids, config.max_model_len
    if not prompt:
        raise ValueError("prompt_token_ids=[]: must have at least one token")
    for token in (min(prompt), max(prompt)):
        if not 0 <= token < vocab_size:
            raise ValueError(f"prompt_token_ids has {token}: must be 0 to {vocab_size - 1}")
    if len(prompt) >= limit:
        raise ValueError(f"the prompt has {len(prompt)} tokens and needs room for one more: max_model_len is {limit}")
    if isinstance(request.params, BeamSearchParams):
        check_width(request.params.beam_width, config)
    elif request.params.n > config.max_num_seqs:
        raise ValueError(f"n={request.params.n}: must be at most max_num_seqs={config.max_num_seqs}")


def longest_sequence(request: Request, config: EngineConfig, manager: KVCacheManager) -> int:
    """Length at which the sequences of a request end; without max_tokens, all that model and pool allow. Raises
    ValueError where the pool cannot hold them.

    The last token's KV is never computed, so a sequence of this length holds one token less.
    """
    params, num_prompt = request.params, request.num_prompt_tokens
    n = params.num_sequences
    total, limit = manager.pool.num_blocks, config.max_model_len

    def blocks(max_len: int) -> int:
        return manager.most_blocks(num_prompt, max_len - 1, n)

    max_tokens = params.max_tokens
    if max_tokens is None:
        fitting = bisect_right(range(num_prompt + 1, limit + 1), total, key=blocks)
        max_len = num_prompt + max(1, fitting)
    else:
        max_len = min(num_prompt + max_tokens, limit)
    if blocks(max_len) > total:
        raise ValueError(
            f"request {request.request_id!r} needs up to {blocks(max_len)} blocks of "
            f"{config.block_size} tokens (prompt {num_prompt}, length up to {max_len}, n={n}): "
            f"the pool has {total}"
        )
    return max_len
