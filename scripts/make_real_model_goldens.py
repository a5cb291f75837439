"""Makes tests/data/golden_*.json and real_text_*.json there: what transformers computes with two real models.

    python scripts/make_real_model_goldens.py MODELS_DIRECTORY --llama-tokenize PATH

needs torch, transformers 5.24, gguf and llama.cpp's llama-tokenize, which the tests do not. The model is
the GGUF file, dequantised to fp32; every tensor is first compared with the gguf package's own values.
Prompts are stored as token ids, so that the tests of an executor need no tokenizer. For every greedy token
the file has its logprob and how far the second-best was behind (in logits): where that gap is tiny, a
difference there is not a fault.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

DATA = Path(__file__).parents[1] / "tests" / "data"
NEW_TOKENS = 64
REAL_TEXT_TOKENS = 2000


@dataclass(frozen=True)
class Model:
    name: str
    file: str
    chat: str
    """how one user message is written; {} is its place"""


MODELS = (
    Model(
        "smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    ),
    Model(
        "gemma3-270m",
        "gemma-3-270m-q4_k_m.gguf",
        "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    ),
)

CHATS = (
    "What is the capital of France?",
    "Write a short poem about the sea in winter.",
    "Explain to a ten-year-old why the sky is blue.",
    "Give me three tips for sleeping better.",
    "Translate to Spanish: The book is on the table.",
    "I have 17 apples and give away 5. How many are left?",
)
TEXTS = (
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "SELECT name, COUNT(*) FROM orders WHERE",
    "La ville de Paris est connue pour",
    "Die Katze sitzt auf dem Dach und",
    "El perro corre por el parque porque",
    "東京は日本の",
    "Москва является",
    "1, 1, 2, 3, 5, 8, 13,",
    "Ingredients:\n- 2 cups flour\n- 1 cup sugar\n- 3 eggs\n\nInstructions:\n1.",
    '{"name": "Alice", "age": 30, "email":',
    "The mitochondria is often called the powerhouse of the cell because it produces most of the chemical "
    "energy that the cell needs. In plants, a second kind of organelle, the chloroplast, captures light. "
    "Both of them have their own DNA, which suggests that they were once",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="directory of the two GGUF files")
    parser.add_argument("--llama-tokenize", type=Path, required=True)
    parser.add_argument("--only", choices=[model.name for model in MODELS])
    arguments = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        if arguments.only not in (None, model.name):
            continue
        path = arguments.models / model.file
        write_real_text(model, path, arguments.llama_tokenize)
        network = load(path)
        prompts = list(TEXTS) + [model.chat.format(message) for message in CHATS]
        token_ids = [tokenize(arguments.llama_tokenize, path, prompt) for prompt in prompts]
        rows = []
        for prompt, ids, made in zip(prompts, token_ids, generate(network, token_ids), strict=True):
            rows.append({"prompt": prompt, "prompt_token_ids": ids} | score(network, ids, made))
            print(model.name, repr(prompt[:40]), "smallest gap", min(rows[-1]["gaps"]), flush=True)
        golden = {"model": model.name, "file": model.file, "max_tokens": NEW_TOKENS}
        write_json(DATA / f"golden_{model.name}.json", golden, "prompts", rows)


def tokenize(program: Path, model: Path, text: str) -> list[int]:
    """Ids as llama.cpp gives them, with the model's own beginning-of-sequence rule."""
    command = [str(program), "-m", str(model), "--ids", "--log-disable", "--no-escape", "-p", text]
    environment = {"LD_LIBRARY_PATH": str(program.parent)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [int(x) for x in json.loads(done.stdout)]


def write_real_text(model: Model, path: Path, program: Path) -> None:
    """The first 2,000 tokens of real_text.txt, one context."""
    ids = tokenize(program, path, (DATA / "real_text.txt").read_text())[:REAL_TEXT_TOKENS]
    assert len(ids) == REAL_TEXT_TOKENS, f"{model.name}: real_text.txt has only {len(ids)} tokens"
    (DATA / f"real_text_{model.name}.json").write_text(json.dumps(ids) + "\n")


def load(path: Path) -> PreTrainedModel:
    """The dequantised fp32 model, proven equal to the file."""
    network = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    compare_with_file(network, path)
    return network.eval()


def compare_with_file(network: PreTrainedModel, path: Path) -> None:
    """Every tensor of the file against the parameter that transformers made of it."""
    config = network.config
    parameters = dict(network.named_parameters())
    seen = set()
    for tensor in gguf.GGUFReader(path).tensors:
        name = parameter_name(tensor.name, config.model_type)
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if config.model_type == "llama" and re.search(r"\.(q|k)_proj\.", name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            # llama.cpp turns neighbouring columns; its converter interleaves the two halves of each head.
            values = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        expected = parameters[name].detach().numpy()
        if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
            np.testing.assert_allclose(expected + 1, values, rtol=3e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(expected, values, err_msg=name)
        seen.add(name)
    assert seen == set(parameters), set(parameters) ^ seen


NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def parameter_name(name: str, model_type: str) -> str:
    stem, _, suffix = name.rpartition(".")
    prefix = "model."
    if stem.startswith("blk."):
        _, number, stem = stem.split(".", 2)
        prefix = f"model.layers.{number}."
    if stem == "ffn_norm":
        after = "pre_feedforward_layernorm" if model_type == "gemma3_text" else "post_attention_layernorm"
        return f"{prefix}{after}.{suffix}"
    return f"{prefix}{NAMES[stem]}.{suffix}"


@torch.no_grad()
def generate(network: PreTrainedModel, prompts: list[list[int]]) -> list[list[int]]:
    """64 greedy tokens for each prompt, as one left-padded batch; ends of sequence are not heeded."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache, made = None, []
    for _ in range(NEW_TOKENS):
        result = network(
            ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
        )
        cache, ids = result.cache, result.logits[:, -1].argmax(-1, keepdim=True)
        mask = torch.cat((mask, torch.ones_like(ids)), 1)
        positions = positions[:, -1:] + 1
        made.append(ids)
    return torch.cat(made, 1).tolist()


@torch.no_grad()
def score(network: PreTrainedModel, prompt: list[int], made: list[int]) -> dict[str, list[Any]]:
    """Proves by one plain forward, without padding or cache, that `made` is the greedy continuation."""
    ids = torch.tensor([prompt + made[:-1]])
    logits = network(ids, use_cache=False, logits_to_keep=len(made)).logits[0].double()
    best = torch.topk(logits, 2)
    assert best.indices[:, 0].tolist() == made, "a near tie fell otherwise in the batch: change the prompt"
    logprobs = best.values[:, 0] - torch.logsumexp(logits, -1)
    gaps = best.values[:, 0] - best.values[:, 1]
    return {
        "token_ids": made,
        "logprobs": [round(float(x), 5) for x in logprobs],
        "gaps": [round(float(x), 5) for x in gaps],
    }


def write_json(path: Path, head: dict[str, Any], key: str, rows: list[dict[str, Any]]) -> None:
    """One row a line, so that a difference can be read."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(json.dumps(head)[:-1] + f', "{key}": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
