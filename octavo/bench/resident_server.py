"""Resident memory of a server under load: what `octavo serve` holds beyond weights and KV."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from octavo.bench.server_process import ServerProcess, ask, get, metrics
from octavo.engine_thread import READY_BYTES

PROMPT_TOKENS, STREAMS, STREAM_TOKENS, OUTPUT_TOKENS = 2000, 32, 64, 64
"""One long prompt, which makes a step's buffers as large as they become, and then so many streams at once"""


def measure_served(model: str, arguments: Sequence[str], weight_bytes: int, block_bytes: int) -> dict[str, int]:
    """Of a server of its own that has answered them, in bytes: served_resident_bytes, and what of it is beside packed
    weights and the KV blocks that were written or made ready. Raises RuntimeError where it does not start or answer."""
    try:
        with ServerProcess(model, *arguments) as server:
            blocks = asyncio.run(_load(server.port, READY_BYTES // block_bytes))
            resident = round(server.resident_mb() * 1e6)
    except SystemExit as error:
        raise RuntimeError(str(error)) from None
    return {"served_resident_bytes": resident, "served_beyond_bytes": resident - weight_bytes - blocks * block_bytes}


async def _load(port: int, ready: int) -> int:
    """Asks; the number of blocks that have memory, if so many are made ready."""
    model = json.loads(await get(port, "/v1/models"))["data"][0]
    output = min(OUTPUT_TOKENS, model["max_model_len"] // 2)
    longest = model["max_model_len"] - output
    await _answer(port, model["id"], 0, min(PROMPT_TOKENS, longest), 1)
    streams = (_answer(port, model["id"], n, min(STREAM_TOKENS, longest), output) for n in range(STREAMS))
    await asyncio.gather(*streams)
    after = await metrics(port)
    free, cached, referenced = (after[f'octavo_kv_blocks{{state="{s}"}}'] for s in ("free", "cached", "referenced"))
    kept = max(cached + referenced, after["octavo_kv_blocks_peak"])
    return int(max(kept, min(ready, free + cached + referenced)))


async def _answer(port: int, model: str, seed: int, prompt_tokens: int, max_tokens: int) -> None:
    prompt = [5 + (seed * 7 + place * (seed + 1)) % 50 for place in range(prompt_tokens)]
    body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
    status, _, text = await ask(port, {**body, "ignore_eos": True, "stream": True})
    if status != 200:
        raise RuntimeError(f"the server answered {status}: {text[:500].decode(errors='replace')}")
