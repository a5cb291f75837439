"""Makes tests/data/beams_*.json and tests/models/data/beams.json: what transformers' beam search finds.

    python scripts/make_beam_goldens.py MODELS_DIRECTORY

needs torch, transformers 5.24 and gguf, which the tests do not. Every search runs alone, in fp32. The real models
are the GGUF files of make_real_model_goldens.py, with prompts from its output; the small ones are those of
make_model_goldens.py.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make_real_model_goldens import DATA, MODELS, load
from transformers import AutoModelForCausalLM, PreTrainedModel

SMALL_DATA = DATA.parent / "models" / "data"
WIDTHS, PENALTIES, EARLY = (2, 4, 8), (0.5, 1.0, 2.0), (True, False)
NEW_TOKENS = 12
# (number of the prompt in golden_*.json, tokens that end a beam): short answers, long ones, several ends.
PROMPTS: dict[str, list[tuple[int, list[int]]]] = {
    "smollm2": [(0, [2, 30]), (14, [2]), (1, [2, 30, 198])],
    "gemma3-270m": [(0, [1, 236761]), (10, [1, 106]), (11, [1, 106, 107])],
}
# The same with a width, a length penalty and early stopping, for answers of many tokens.
LONG_TOKENS = 56
LONG: dict[str, list[tuple[int, list[int], int, float, bool]]] = {
    "smollm2": [(14, [2], 4, 1.0, False), (1, [2], 8, 2.0, False), (11, [2, 30], 4, 0.5, True), (0, [2], 2, 1.0, True)],
    "gemma3-270m": [(10, [1, 106], 4, 1.0, False), (11, [1, 236761], 4, 0.5, True)],
}
SMALL_CASES = ("llama", "gemma3", "mistral_window", "qwen3")
SMALL_ENDS = [2, 5, 9, 11]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="directory of the two GGUF files")
    parser.add_argument("--only", choices=["small", *PROMPTS])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.only in (None, "small"):
        write(SMALL_DATA / "beams.json", small_rows())
    for model in MODELS:
        if arguments.only in (None, model.name):
            network = load(arguments.models / model.file)
            write(DATA / f"beams_{model.name}.json", real_rows(network, model.name))


def real_rows(network: PreTrainedModel, name: str) -> list[dict[str, Any]]:
    """Every width, length penalty and early stopping for the first prompt, some for the others, some with many
    tokens."""
    prompts = json.loads((DATA / f"golden_{name}.json").read_text())["prompts"]
    short = [
        (number, ends, width, penalty, early, NEW_TOKENS)
        for (number, ends), width, penalty, early in product(PROMPTS[name], WIDTHS, PENALTIES, EARLY)
        if number == PROMPTS[name][0][0] or (width, penalty) == (4, 1.0)
    ]
    rows = []
    for number, ends, width, penalty, early, tokens in [*short, *((*each, LONG_TOKENS) for each in LONG[name])]:
        params = {"beam_width": width, "length_penalty": penalty, "early_stopping": early, "max_tokens": tokens}
        rows.append({"prompt": number} | search(network, prompts[number]["prompt_token_ids"], ends, params))
        print(name, number, params, rows[-1]["scores"], flush=True)
    return rows


def small_rows() -> list[dict[str, Any]]:
    """The same for the small models, with "never", a penalty on repetition and a least length as well."""
    rows = []
    for number, name in enumerate(SMALL_CASES):
        network = AutoModelForCausalLM.from_pretrained(SMALL_DATA / name, dtype=torch.float32).eval()
        generator = np.random.default_rng(number)
        for width, penalty, early in product(WIDTHS, PENALTIES, (*EARLY, "never")):
            prompt = generator.integers(12, 96, int(generator.integers(1, 30))).tolist()
            params = {"beam_width": width, "length_penalty": penalty, "early_stopping": early, "max_tokens": 14}
            extra: dict[str, Any] = {}
            if len(rows) % 3 == 1:
                extra = {"repetition_penalty": 1.5, "min_tokens": 3}
            elif len(rows) % 3 == 2:
                extra = {"ignore_eos": True}
            row = search(network, prompt, SMALL_ENDS, params | extra)
            rows.append({"model": name, "prompt_token_ids": prompt} | row)
    return rows


def search(network: PreTrainedModel, prompt: list[int], ends: list[int], params: dict[str, Any]) -> dict[str, Any]:
    """The ids and scores of all beams, best first."""
    ignore = params.get("ignore_eos", False)
    options: dict[str, Any] = {"eos_token_id": None if ignore else ends, "pad_token_id": 0}
    if "min_tokens" in params:
        options["min_new_tokens"] = params["min_tokens"]
    if "repetition_penalty" in params:
        options["repetition_penalty"] = params["repetition_penalty"]
    network.generation_config.eos_token_id = options["eos_token_id"]
    found = network.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        do_sample=False,
        num_beams=params["beam_width"],
        num_return_sequences=params["beam_width"],
        length_penalty=params["length_penalty"],
        early_stopping=params["early_stopping"],
        max_new_tokens=params["max_tokens"],
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    beams = [cut(ids[len(prompt) :].tolist(), [] if ignore else ends) for ids in found.sequences]
    scores = [round(float(score), 5) for score in found.sequences_scores]
    return {"eos_token_ids": ends, "params": params, "beams": beams, "scores": scores}


def cut(ids: list[int], ends: list[int]) -> list[int]:
    """Up to the first end: what follows is padding."""
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """One search a line."""
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
