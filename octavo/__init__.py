"""Octavo: a PagedAttention inference engine.

from octavo import LLM, SamplingParams

with LLM("smollm2") as llm:
    for output in llm.generate(["Hello", "The capital of France is"], SamplingParams(max_tokens=32)):
        print(output.outputs[0].text)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo.async_llm import AsyncLLM
    from octavo.beam_search_params import BeamSearchParams
    from octavo.llm import LLM
    from octavo.outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
    from octavo.sampling_params import SamplingParams
    from octavo.structured_outputs import StructuredOutputsParams

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchParams",
    "CompletionOutput",
    "Logprob",
    "RequestMetrics",
    "RequestOutput",
    "SamplingParams",
    "StructuredOutputsParams",
    "__version__",
]

_HOME = {
    "LLM": "octavo.llm",
    "AsyncLLM": "octavo.async_llm",
    "BeamSearchParams": "octavo.beam_search_params",
    "CompletionOutput": "octavo.outputs",
    "Logprob": "octavo.outputs",
    "RequestMetrics": "octavo.outputs",
    "RequestOutput": "octavo.outputs",
    "SamplingParams": "octavo.sampling_params",
    "StructuredOutputsParams": "octavo.structured_outputs",
}


def __getattr__(name: str) -> object:
    """Imports on first use: `octavo --version` must not wait for numpy and the tokenizers."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'octavo' has no attribute {name!r}")
