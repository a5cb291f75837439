"""Makes tests/models/data: small random models of every family, and what transformers computes with them.

    python scripts/make_model_goldens.py

needs torch and transformers 5.24, which the tests do not. For each case it writes a Hugging Face directory
(config.json, model.safetensors), and CASE.npz beside it: the prompts, fp32 logits (all rows of the last
prompt, the last row of the others), and greedy continuations. rope.json holds rotary tables.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

DATA = Path(__file__).parents[1] / "tests" / "models" / "data"
VOCAB = 96
PROMPT_LENGTHS = (1, 7, 23, 40)
NEW_TOKENS = 12

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}


@dataclass(frozen=True)
class Case:
    name: str
    config_class: type
    model_class: type[PreTrainedModel]
    changes: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.bfloat16
    prompt_lengths: tuple[int, ...] = PROMPT_LENGTHS
    new_tokens: int = NEW_TOKENS


def llama(name: str, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Case:
    return Case(name, LlamaConfig, LlamaForCausalLM, changes, dtype)


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA = {
    "num_hidden_layers": 7,
    "head_dim": 16,
    "query_pre_attn_scalar": 20,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
    "tie_word_embeddings": True,
    "rope_theta": None,
}


def gemma_rope(full: dict[str, Any]) -> dict[str, Any]:
    return {"full_attention": full, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}


CASES = (
    llama("llama", torch.float32),
    llama("llama_nine_heads_tied", num_attention_heads=9, num_key_value_heads=3, hidden_size=72,
          tie_word_embeddings=True),
    llama("llama_biases", torch.float16, attention_bias=True, mlp_bias=True),
    llama("llama_head40", num_attention_heads=2, num_key_value_heads=1, head_dim=40),
    llama("llama_head96", num_attention_heads=2, num_key_value_heads=2, head_dim=96, num_hidden_layers=1),
    llama("llama_rope_llama3", rope_parameters=LLAMA3 | {"rope_theta": 500.0}),
    llama("llama_rope_linear", rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}),
    llama("llama_rope_yarn", rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 100.0,
          "original_max_position_embeddings": 16}),
    llama("llama_rope_dynamic", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}),
    # Longer than the original 64 positions, in one forward: what follows depends on history in transformers.
    Case("llama_rope_dynamic_long", LlamaConfig, LlamaForCausalLM,
         {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100.0}},
         prompt_lengths=(90,), new_tokens=0),
    Case("mistral_window", MistralConfig, MistralForCausalLM, {"sliding_window": 9}),
    Case("qwen2", Qwen2Config, Qwen2ForCausalLM, {"tie_word_embeddings": True}),
    Case("qwen3", Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16}),
    Case("gemma3", Gemma3TextConfig, Gemma3ForCausalLM,
         GEMMA | {"rope_parameters": gemma_rope({"rope_type": "default", "rope_theta": 1e6})}),
    Case("gemma3_linear", Gemma3TextConfig, Gemma3ForCausalLM,
         GEMMA | {"rope_parameters": gemma_rope({"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}),
                  "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention",
                  "sliding_attention"]}),
)  # fmt: skip


def make_model(case: Case) -> None:
    """Writes a model of random weights, large enough for every part to matter."""
    torch.manual_seed(sum(case.name.encode()))
    settings = {k: v for k, v in (SMALL | case.changes).items() if v is not None or k == "pad_token_id"}
    if "rope_parameters" in settings:
        settings.pop("rope_theta", None)
    model = case.model_class(case.config_class(**settings)).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (0.0 if "gemma" in case.name else 1.0))
            else:
                parameter.copy_(torch.randn_like(parameter) * (0.3 if name.endswith("bias") else 0.25))
    directory = DATA / case.name
    shutil.rmtree(directory, ignore_errors=True)
    model.to(case.dtype).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)


def make_golden(case: Case) -> None:
    """Runs the saved model in fp32, one whole forward per token: no cache, so nothing depends on history."""
    model = AutoModelForCausalLM.from_pretrained(DATA / case.name, dtype=torch.float32)
    model.eval()
    generator = np.random.default_rng(7)
    arrays: dict[str, np.ndarray] = {}
    for number, length in enumerate(case.prompt_lengths):
        prompt = generator.integers(3, VOCAB, length)
        logits = forward(model, prompt)
        keep_all = number == len(case.prompt_lengths) - 1
        arrays[f"prompt{number}"] = prompt.astype(np.int32)
        arrays[f"logits{number}"] = logits if keep_all else logits[-1:]
        tokens = prompt
        for _ in range(case.new_tokens):
            tokens = np.append(tokens, forward(model, tokens)[-1].argmax())
        arrays[f"greedy{number}"] = tokens[length:].astype(np.int32)
    np.savez_compressed(DATA / f"{case.name}.npz", **arrays)


def forward(model: PreTrainedModel, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(tokens)[None], use_cache=False).logits[0].numpy()


ROPES: tuple[dict[str, Any], ...] = (
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 4.0, "length": 9000},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024},
    {"rope_type": "yarn", "factor": 8.0},
    {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 512},
    {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.75, "beta_fast": 16, "beta_slow": 2},
    {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7},
    {"rope_type": "yarn", "factor": 32.0, "truncate": False},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
)  # fmt: skip


def rope_table(head_dim: int, theta: float, scaling: dict[str, Any]) -> dict[str, Any]:
    settings = dict(scaling)
    length = settings.pop("length", None)
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=2048,
        rope_parameters=settings | {"rope_theta": theta},
    )
    if settings["rope_type"] == "default":
        inv_freq, scale = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv_freq, scale = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, "cpu", seq_len=length)
    return {
        "head_dim": head_dim,
        "theta": theta,
        "scaling": settings,
        "max_position_embeddings": 2048,
        "length": length,
        "inv_freq": [float(f) for f in inv_freq],
        "attention_scaling": float(scale),
        "cos_sin": rotate(inv_freq, scale),
    }


def rotate(inv_freq: torch.Tensor, scale: float) -> dict[str, list[list[float]]]:
    positions = torch.tensor([0, 1, 100, 5000])
    angles = positions[:, None].float() * inv_freq
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return {
        "positions": positions.tolist(),
        "cos": [[round(float(x), 7) for x in row] for row in cos],
        "sin": [[round(float(x), 7) for x in row] for row in sin],
    }


def make_ropes() -> None:
    tables = [rope_table(32, 10000.0, scaling) for scaling in ROPES]
    tables += [rope_table(40, 500000.0, ROPES[-2]), rope_table(96, 100000.0, ROPES[0])]
    (DATA / "rope.json").write_text(json.dumps(tables) + "\n")


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        make_model(case)
        make_golden(case)
        print(case.name)
    make_ropes()


if __name__ == "__main__":
    main()
