"""Makes tiny model files for tests: GGUF, safetensors, and directories."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

GGUF_TYPES = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "str": 8,
    "arr": 9,
}
GGUF_TYPES |= {"u64": 10, "i64": 11, "f64": 12}
FORMATS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "B"}
FORMATS |= {"u64": "Q", "i64": "q", "f64": "d"}
KINDS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "BF16": (30, 1, 2)}


def gguf_string(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind: str, value: Any) -> bytes:
    """The bytes of a value; an array's is (element kind, elements)."""
    if kind == "str":
        return gguf_string(value)
    if kind == "arr":
        inner, items = value
        return struct.pack("<IQ", GGUF_TYPES[inner], len(items)) + b"".join(gguf_value(inner, i) for i in items)
    return struct.pack("<" + FORMATS[kind], value)


def gguf_key(key: str | bytes, kind: str, value: Any) -> bytes:
    return gguf_string(key) + struct.pack("<I", GGUF_TYPES[kind]) + gguf_value(kind, value)


def gguf_info(name: str, dims: list[int], kind: int, offset: int) -> bytes:
    """A tensor info; dims innermost first."""
    return gguf_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def gguf_header(keys: list[bytes], infos: list[bytes], version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)


def gguf_bytes(keys: dict[str, tuple[str, Any]], tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A whole file. keys: name -> (kind, value); tensors: name -> (kind, row-major shape, bytes)."""
    infos, data = [], b""
    for name, (kind, shape, raw) in tensors.items():
        infos.append(gguf_info(name, list(reversed(shape)), KINDS[kind][0], len(data)))
        data += raw + bytes(-len(raw) % 32)
    head = gguf_header([gguf_key(key, *value) for key, value in keys.items()], infos)
    return head + bytes(-len(head) % 32) + data


def llama_keys(**extra: tuple[str, Any]) -> dict[str, tuple[str, Any]]:
    """Metadata of a tiny llama: 2 layers, 2 heads of 4, 1 KV head. Keywords write a.b as a__b."""
    keys: dict[str, tuple[str, Any]] = {
        "general.architecture": ("str", "llama"),
        "llama.block_count": ("u32", 2),
        "llama.context_length": ("u32", 64),
        "llama.embedding_length": ("u32", 8),
        "llama.feed_forward_length": ("u32", 16),
        "llama.attention.head_count": ("u32", 2),
        "llama.attention.head_count_kv": ("u32", 1),
        "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
        "llama.rope.freq_base": ("f32", 10000.0),
        "tokenizer.ggml.tokens": ("arr", ("str", ["a", "b", "é"])),
        "tokenizer.ggml.scores": ("arr", ("f32", [0.0, -1.0, -2.0])),
        "tokenizer.ggml.eos_token_id": ("u32", 2),
    }
    return keys | {key.replace("__", "."): value for key, value in extra.items()}


def f32(shape: tuple[int, ...], start: float = 0.0) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor of ascending values."""
    values = np.arange(np.prod(shape), dtype="<f4") + np.float32(start)
    return "F32", shape, values.tobytes()


def llama_tensors() -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """GGUF tensors of the tiny llama."""
    tensors = {"token_embd.weight": f32((6, 8)), "output_norm.weight": f32((8,))}
    for layer in range(2):
        shapes = {
            "attn_norm": (8,),
            "attn_q": (8, 8),
            "attn_k": (4, 8),
            "attn_v": (4, 8),
            "attn_output": (8, 8),
        }
        shapes |= {"ffn_norm": (8,), "ffn_gate": (16, 8), "ffn_up": (16, 8), "ffn_down": (8, 16)}
        for name, shape in shapes.items():
            tensors[f"blk.{layer}.{name}.weight"] = f32(shape, layer)
    return tensors


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **metadata: str) -> bytes:
    """A whole file. tensors: name -> (dtype, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    return raw_safetensors(json.dumps(header).encode(), data)


def raw_safetensors(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def hf_config(**changes: Any) -> dict[str, Any]:
    """config.json of the tiny llama."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 6,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return config | changes


def hf_tensors() -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Hugging Face tensors of the tiny llama."""
    tensors = {"model.embed_tokens.weight": f32((6, 8)), "model.norm.weight": f32((8,))}
    for layer in range(2):
        shapes = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "self_attn.v_proj": (4, 8)}
        shapes |= {"self_attn.o_proj": (8, 8), "mlp.gate_proj": (16, 8), "mlp.up_proj": (16, 8)}
        shapes |= {"mlp.down_proj": (8, 16), "input_layernorm": (8,), "post_attention_layernorm": (8,)}
        for name, shape in shapes.items():
            tensors[f"model.layers.{layer}.{name}.weight"] = f32(shape, layer)
    return tensors


def write_directory(folder: Path, config: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    """A model directory with one safetensors file."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(hf_tensors() if tensors is None else tensors))
    return folder
