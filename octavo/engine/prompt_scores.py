"""Logprobs of prompt tokens, kept beside the tokens in the prefix cache.

A token's logprob comes from the logits of the token before it, which a hit skips. So a whole block of prompt tokens
keeps their logprobs and ranks, if some request asked for prompt_logprobs while it computed them. A later request
that asks for the chosen tokens' logprobs alone (prompt_logprobs=0) takes them from there, and then the KV of all but
the last scored token as a hit: that token's logits score the next one. One that asks for the likeliest tokens as well
computes its whole prompt.
"""

from __future__ import annotations

from octavo.engine.kv_cache_manager import KVCacheManager
from octavo.engine.request import Request
from octavo.engine.sequence_update import TokenLogprob


def keep_scores(manager: KVCacheManager, request: Request) -> None:
    """Puts the logprobs of a scored prompt beside its whole blocks in the prefix cache."""
    entries, size = request.prompt_logprobs, manager.block_size
    if entries is None or not request.active:
        return
    leader = request.active[0]
    node = leader.node
    for index in range(leader.num_sealed - 1, -1, -1):
        assert node is not None
        part = entries[index * size : (index + 1) * size]
        if node.scores is None and len(part) == size:
            node.scores = tuple(entry and TokenLogprob(entry.logprob, entry.rank, [], []) for entry in part)
        node = node.parent


def recall_scores(manager: KVCacheManager, request: Request) -> None:
    """Takes over the logprobs that the prefix cache has of the beginning of a waiting request's prompt."""
    cache, size, entries = manager.prefix_cache, manager.block_size, request.prompt_logprobs
    if cache is None or entries is None or request.params.prompt_logprobs != 0:
        return
    prompt, leader = request.prompt_token_ids, request.pending[0]
    known: list[TokenLogprob | None] = []
    node = cache.root(request.namespace)
    while node is not None and len(known) < len(prompt):
        tokens = tuple(prompt[len(known) : len(known) + size])
        child = None
        if len(tokens) == size:
            child = cache.find(node, tokens, manager.digest(leader, len(known) // size, tokens))
        if child is None or child.scores is None:
            child, common = cache.closest(node, tokens, lambda node: node.scores is not None)
            if child is not None and child.scores is not None:
                known += child.scores[:common]
            break
        known += child.scores
        node = child
    if len(known) > len(entries):
        entries[:] = known
