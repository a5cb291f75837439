"""Model directories of every family with random weights and a real tokenizer, large enough for blocks of 32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from octavo.loaders.hf_config import hf_model_config
from octavo.models.registry import build_program
from octavo.text.byte_level import _byte_letters

ROWS = 384
"""of the embedding: more than any of the tokenizers has tokens"""
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
MERGED = ("th", "he", "the", "in", "an", "er", "on", "re", "at", "and")
_SPACE = "▁"
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: dict[str, Any] = {
    "llama": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    },
    "qwen": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": _QWEN}, "behavior": "Isolated", "invert": False},
            _BYTE_LEVEL | {"use_regex": False},
        ],
    },
}


def config_of(family: str, **changes: Any) -> dict[str, Any]:
    """config.json of two layers, 4 query and 2 KV heads of 16."""
    config = {
        "architectures": [_CLASSES[family]],
        "vocab_size": ROWS,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 1024,
        "rope_theta": 10000.0,
        "tie_word_embeddings": family in ("llama", "gemma3"),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "gemma3":
        config |= {"query_pre_attn_scalar": 24, "sliding_window": 24, "rope_local_base_freq": 5000.0}
        config |= {"layer_types": ["sliding_attention", "full_attention"], "rms_norm_eps": 1e-6}
    if family == "mistral":
        config |= {"sliding_window": 32}
    return config | changes


def make_random_directory(target: Path, family: str, seed: int = 0, dtype: str = "BF16", **changes: Any) -> Path:
    """Writes the directory `target`: config.json with `changes`, weights of `dtype`, tokenizer, chat template."""
    target.mkdir(parents=True, exist_ok=True)
    config = config_of(family, **changes)
    (target / "config.json").write_text(json.dumps(config))
    write_weights(target, random_weights(config, seed), dtype)
    sentencepiece = family in ("mistral", "gemma3")
    document = _pieces_tokenizer(family) if sentencepiece else _letters_tokenizer(family)
    (target / "tokenizer.json").write_text(json.dumps(document))
    names = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": sentencepiece, "chat_template": TEMPLATE}
    (target / "tokenizer_config.json").write_text(json.dumps(names))
    return target


def random_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """The tensors that the program of `config` reads, under their Hugging Face names."""
    model, tied = hf_model_config(config, {}, Path("config.json"))
    from dataclasses import replace

    program = build_program(replace(model, tie_word_embeddings=bool(tied)))
    generator = np.random.default_rng(seed)
    weights = {}
    for name, shape in program.weights.items():
        values = generator.standard_normal(shape).astype(np.float32) * np.float32(0.5 / np.sqrt(shape[-1]))
        if name.endswith("norm.weight") and model.family != "gemma3":
            values += np.float32(1)
        weights[name if name.startswith("lm_head") else f"model.{name}"] = values
    return weights


def write_weights(target: Path, weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]], dtype: str) -> None:
    """model.safetensors."""
    from loaders.loader_files import safetensors_bytes

    tensors = {name: (dtype, values.shape, _encoded(values, dtype)) for name, values in weights.items()}
    (target / "model.safetensors").write_bytes(safetensors_bytes(tensors))


def _encoded(values: np.ndarray[Any, np.dtype[np.float32]], dtype: str) -> bytes:
    if dtype == "BF16":
        return (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def _added(*contents: str) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": place, "content": content, **flags} for place, content in enumerate(contents)]


def _document(added: list[dict[str, Any]], model: dict[str, Any], **parts: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    document |= {"normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None}
    return document | parts | {"model": {"type": "BPE", **model}}


def _letters_tokenizer(family: str) -> dict[str, Any]:
    tokens = ["<unk>", "<s>", "</s>", *_byte_letters().values(), *MERGED]
    vocabulary = {token: place for place, token in enumerate(tokens)}
    return _document(
        _added(*tokens[:3]),
        {"vocab": vocabulary, "merges": [[token[:-1], token[-1]] for token in MERGED]},
        pre_tokenizer=_PRE_TOKENIZERS["qwen" if family.startswith("qwen") else "llama"],
        decoder=_BYTE_LEVEL,
    )


def _pieces_tokenizer(family: str) -> dict[str, Any]:
    letters = [_SPACE, *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,é"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens, *letters, *MERGED, f"{_SPACE}the", f"{_SPACE}and"]
    merges = [[token[:-1], token[-1]] for token in MERGED] + [[_SPACE, "the"], [_SPACE, "and"]]
    replace_spaces = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    normalizer: dict[str, Any] = replace_spaces
    steps: list[dict[str, Any]] = [replace_spaces | {"pattern": {"String": _SPACE}, "content": " "}]
    steps += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    if family == "mistral":
        normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, replace_spaces]}
        steps += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return _document(
        _added(*tokens[:3]),
        {
            "vocab": {token: place for place, token in enumerate(tokens)},
            "merges": merges,
            "unk_token": "<unk>",
            "byte_fallback": True,
            "fuse_unk": True,
        },
        normalizer=normalizer,
        decoder={"type": "Sequence", "decoders": steps},
    )
