"""What structured outputs cost: compiling a form, and following it token by token, in CPU time of one thread.

python scripts/measure_structured_outputs.py smollm2 gemma3-270m
"""

import json
import sys
import time

import numpy as np

from octavo import SamplingParams, StructuredOutputsParams
from octavo.guidance import GrammarCompiler
from octavo.loaders.checkpoint import open_checkpoint
from octavo.loaders.hub import resolve_model
from octavo.text.tokenizer import load_tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "country": {"enum": ["DE", "FR", "GB", "JP", "US"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
VALUE = {
    "name": "Jürgen Müller-Lüdenscheidt",
    "age": 47,
    "email": "j.mueller@example.org",
    "tags": ["swimming", "rubber ducks", "hot tubs"],
    "country": "DE",
}
TEXT = json.dumps(VALUE, ensure_ascii=False, separators=(",", ":"))
LONG = "Some words of an ordinary text, with a comma here and there. " * 12
CASES = {
    "schema": ({"json": PERSON}, TEXT),
    "any object": ({"json_object": True}, TEXT),
    "string up to 1000": ({"json": {"type": "string", "maxLength": 1000}}, json.dumps(LONG)),
    "regex of words": ({"regex": "([A-Za-z]+[,. ]+)*"}, LONG),
    "choice of 100": ({"choice": [f"answer number {number}" for number in range(100)]}, "answer number 77"),
}


def measure(name: str) -> None:
    tokenizer = load_tokenizer(open_checkpoint(resolve_model(name)).tokenizer_files())
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids)
    started = time.process_time()
    compiler.check(SamplingParams(structured_outputs=StructuredOutputsParams(choice=["a"])))
    print(f"{name}: trie of {tokenizer.vocab_size} tokens in {time.process_time() - started:.2f} s")
    for case, (form, text) in CASES.items():
        params = SamplingParams(structured_outputs=StructuredOutputsParams(**form))
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        compiling, steps, forks = [], [], []
        for _ in range(5):
            started = time.process_time()
            compiler._compile_in_limits(compiler_text(params))
            compiling.append(time.process_time() - started)
            constraint = compiler.constraint(params)
            for token_id in token_ids:
                started = time.thread_time()
                constraint.advance(token_id)
                steps.append(time.thread_time() - started)
            started = time.thread_time()
            constraint.fork()
            forks.append(time.thread_time() - started)
        step = np.array(steps) * 1e6
        print(
            f"  {case:18} compile {min(compiling) * 1e3:5.1f} ms; a token: mean {step.mean():4.0f} us, "
            f"median {np.median(step):4.0f}, 99 % {np.percentile(step, 99):4.0f}; fork {min(forks) * 1e6:3.0f} us"
        )
    compiler.close()


def compiler_text(params: SamplingParams) -> str:
    from octavo.guidance.grammar import grammar_text

    assert params.structured_outputs is not None
    return grammar_text(params.structured_outputs)


if __name__ == "__main__":
    for each in sys.argv[1:] or ["smollm2"]:
        measure(each)
