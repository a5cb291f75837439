"""What copy-on-write saves: blocks shared by the samples or beams of a request, and by a common system prompt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.bench.lengths import ALPACA, MAX_LENGTH, SHAREGPT, LengthDistribution, Trace
from octavo.bench.null_model import VOCAB_SIZE, null_engine
from octavo.bench.prompts import random_prompts
from octavo.engine.engine import Engine
from octavo.engine.request import Request, Sequence
from octavo.sampling_params import SamplingParams

if TYPE_CHECKING:
    from octavo.llm import LLM

WIDTHS = (2, 4, 6)
PAPER = {
    ("sampling", SHAREGPT.name): "16.2-30.5 %",
    ("sampling", ALPACA.name): "6.1-9.8 %",
    ("beam search", SHAREGPT.name): "44.3-66.3 %",
    ("beam search", ALPACA.name): "37.6-55.2 %",
}
"""The paper's savings from width 2 to width 6"""


@dataclass(frozen=True, slots=True)
class SharingRow:
    """One width on one trace: block-steps, that is, blocks summed over the steps."""

    kind: str
    trace: str
    width: int
    block_size: int
    saved_share: float
    """Of the blocks that the tables name, those that exist only once"""
    paper: str
    requests: int


class BlockMeter:
    """Blocks that tables name, and blocks that there are."""

    def __init__(self) -> None:
        self.named = 0
        self.real = 0

    def read(self, sequences: Iterable[Sequence]) -> None:
        """Adds what the sequences hold now."""
        blocks = [block for each in sequences for table in each.tables for block in table.blocks[table.first_mapped :]]
        self.named += len(blocks)
        self.real += len(set(blocks))

    @property
    def saved_share(self) -> float:
        """0 where nothing is shared."""
        return 1 - self.real / self.named if self.named else 0.0


def measure_sampling(
    distribution: LengthDistribution, width: int, requests: int = 64, block_size: int = 16, seed: int = 0
) -> SharingRow:
    """Parallel sampling: the engine's own scheduler and block tables over no model, as the choice of tokens shares no
    blocks. The samples of a request end together."""
    trace = distribution.sample(requests, seed)
    engine = null_engine(
        num_blocks=-(-MAX_LENGTH // block_size) * width * 2,
        block_size=block_size,
        max_model_len=MAX_LENGTH,
        enable_prefix_caching=False,
    )
    meter = BlockMeter()
    for request in _requests(trace, width):
        engine.add_request(request)
    while engine.has_unfinished:
        engine.step()
        meter.read(_active(engine))
    paper = PAPER["sampling", distribution.name]
    return SharingRow("sampling", distribution.name, width, block_size, meter.saved_share, paper, requests)


def measure_beams(
    llm: LLM, distribution: LengthDistribution, width: int, requests: int, scale: float, seed: int = 0
) -> SharingRow:
    """Beam search by the model, one request after the other, with lengths times `scale`: which beams live on is
    the model's choice."""
    import octavo

    make_params: Any = octavo.BeamSearchParams  # type: ignore[attr-defined, unused-ignore]
    trace = distribution.sample(requests, seed).scaled(scale)
    engine = llm.loaded.engine
    meter = BlockMeter()
    step = engine.step

    def metered() -> Any:
        updates = step()
        meter.read(_active(engine))
        return updates

    search: Any = llm
    patched: Any = engine
    patched.step = metered
    try:
        for number, (prompt, output) in enumerate(zip(trace.prompts, trace.outputs, strict=True)):
            ids = random_prompts(1, int(prompt), llm.loaded.vocab_size, seed + number)
            params = make_params(beam_width=width, max_tokens=int(output), ignore_eos=True)
            search.beam_search([{"prompt_token_ids": ids[0]}], params)
    finally:
        del patched.step
    paper = PAPER["beam search", distribution.name]
    size = engine.config.block_size
    return SharingRow("beam search", distribution.name, width, size, meter.saved_share, paper, requests)


@dataclass(frozen=True, slots=True)
class SystemPromptRow:
    """Requests that arrive at once behind one system prompt."""

    prefix_cache: str
    """off; cold: empty when they arrive; warm: one request came before"""
    requests: int
    system_prompt: int
    """Tokens that all share"""
    question: int
    """Tokens of each one's own"""
    peak_blocks: int
    """Most blocks referenced at once"""
    computed_tokens: int
    time_to_first_token_s: float
    """Median"""
    last_first_token_s: float
    elapsed_s: float


def measure_system_prompt(
    make_llm: Callable[[bool], LLM],
    requests: int = 64,
    system_prompt: int = 512,
    question: int = 32,
    output: int = 16,
    say: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Without a prefix cache, with an empty one, and with one that knows the system prompt.

    make_llm(enable_prefix_caching) gives a fresh engine each time.
    """
    rows = []
    for state in ("off", "cold", "warm"):
        say(f"system prompt, prefix cache {state}")
        with make_llm(state != "off") as llm:
            system = random_prompts(1, system_prompt, llm.loaded.vocab_size, 1)[0]
            questions = random_prompts(requests + 1, question, llm.loaded.vocab_size, 2)
            params = SamplingParams(temperature=0.0, max_tokens=output, ignore_eos=True)
            if state == "warm":
                llm.generate({"prompt_token_ids": system + questions[-1]}, params)
            before = llm.stats().computed_tokens
            started = time.perf_counter()
            outputs = llm.generate([{"prompt_token_ids": system + each} for each in questions[:requests]], params)
            elapsed = time.perf_counter() - started
            first = sorted(each.metrics.time_to_first_token or 0.0 for each in outputs)
            stats = llm.stats()
            row = SystemPromptRow(
                prefix_cache=state,
                requests=requests,
                system_prompt=system_prompt,
                question=question,
                peak_blocks=stats.peak_blocks,
                computed_tokens=stats.computed_tokens - before,
                time_to_first_token_s=statistics.median(first),
                last_first_token_s=first[-1],
                elapsed_s=elapsed,
            )
            rows.append(asdict(row))
    return rows


def measure_sharing(requests: int = 200, block_size: int = 16, seed: int = 0) -> list[dict[str, Any]]:
    """Parallel sampling on both traces."""
    return [
        asdict(measure_sampling(distribution, width, requests, block_size, seed))
        for distribution in (SHAREGPT, ALPACA)
        for width in WIDTHS
    ]


def measure_beam_sharing(
    llm: LLM, requests: int = 6, scale: float = 1.0, say: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Beam search on both traces; no rows where this version has no beam search."""
    if getattr(llm, "beam_search", None) is None:
        return []
    rows = []
    for distribution in (SHAREGPT, ALPACA):
        for width in WIDTHS:
            say(f"beams of {width} on {distribution.name}")
            rows.append(asdict(measure_beams(llm, distribution, width, requests, scale)))
    return rows


def _requests(trace: Trace, width: int) -> Iterable[Request]:
    rng = np.random.default_rng(0)
    for number, (prompt, output) in enumerate(zip(trace.prompts, trace.outputs, strict=True)):
        params = SamplingParams(n=width, seed=number, max_tokens=int(output), ignore_eos=True)
        yield Request(str(number), rng.integers(1, VOCAB_SIZE, int(prompt)).tolist(), params)


def _active(engine: Engine) -> Iterable[Sequence]:
    return (sequence for request in engine.scheduler.running for sequence in request.active)
